"""The command line of the checks: `python -m core.questions check FOLDER [--model]`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from core.questions.check import Finding, check_data, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when all checks hold, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m core.questions", description="Looks after question files."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="check a data set: questions/ (or questions.*) and trees/")
    check.add_argument("folder", type=Path, help="the folder that holds both")
    check.add_argument(
        "--model", action="store_true", help="also measure what the embedded model makes of it (minutes)"
    )
    options = parser.parse_args(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        # Data may hold any character, and a console that can not show one should still show the rest.
        sys.stdout.reconfigure(errors="backslashreplace")
    findings = check_data(options.folder)
    print(table(findings))
    if options.model and all(finding.holds for finding in findings):
        findings += asyncio.run(_with_model(options.folder))
    return 0 if all(finding.holds for finding in findings) else 1


async def _with_model(folder: Path) -> list[Finding]:
    """What the embedded model makes of validation and diagnosis, printed by pool."""
    from core.adapters.local import LocalScorer  # the model's packages are an extra
    from core.adapters.memo import MemoScorer
    from core.questions.check_model import accuracy_table, measure, open_demo_set, targets

    demo = open_demo_set(folder)
    findings = []
    with LocalScorer(workers=2) as model, MemoScorer(model) as scorer:
        for pool, questions in demo.pools.items():
            measured = await measure(scorer, demo, questions)
            found = targets(measured, demo)
            print(f"\n{pool}: right answers with {scorer.model}\n\n{accuracy_table(measured, demo)}")
            print(f"\n{table(found)}")
            findings += found
    return findings


if __name__ == "__main__":
    sys.exit(main())
