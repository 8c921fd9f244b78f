"""Questions: a benchmark read from files, stratified samples of it, and checks of what it holds.

`python -m core.questions check FOLDER` tells whether a data set of questions and trees holds what it should.
"""

from core.questions.loading import load_benchmark
from core.questions.sampling import check_correctness, stratified_sample

__all__ = ["check_correctness", "load_benchmark", "stratified_sample"]
