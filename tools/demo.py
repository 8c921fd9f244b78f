"""`make demo`: the main job."""

import sys


def main() -> int:
    print("The demo is not there yet: it needs the embedded model and the demo data. `make test` works.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
