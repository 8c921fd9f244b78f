"""Runs a command and prints how long it took: `python tools/timed.py NAME -- COMMAND [ARGUMENT ...]`."""

import subprocess
import sys
import time


def main() -> int:
    name, _, *command = sys.argv[1:]
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    outcome = "ok" if code == 0 else f"FAILED (exit {code})"
    print(f"[{name}: {outcome}, {time.monotonic() - started:.0f} s]", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
