"""`make demo` with the recorded scores instead of the model: `python tests/project/replayed_demo.py FOLDER [N]`.

With N it kills itself (SIGKILL) when the model is asked for the Nth time.
"""

import os
import signal
import sys
from pathlib import Path

from core.adapters.recorded_scores import RecordedScorer
from tools import demo, record_demo


class KillingScorer:
    """Passes calls on until its process is to die. calls: how many that are."""

    def __init__(self, scorer: RecordedScorer, calls: int):
        self.model, self._scorer, self._left = scorer.model, scorer, calls

    async def score(self, context, continuations):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._scorer.score(context, continuations)


def main(folder: str, calls: str = "0") -> int:
    scorer = KillingScorer(RecordedScorer.read(record_demo.SCORES), int(calls))
    # The recording holds the answers of the first tactic alone: it is that of the untrained skills.
    return demo.main(Path(folder), lambda config: record_demo.runner_with(config, scorer), ["search_1"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
