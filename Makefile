# Two commands do their own set-up: `make demo` runs the main job, `make test` all checks.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
NOTEBOOK_LIMIT := 600

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONUTF8 := 1

.PHONY: help demo test test-slow text sync docs docs-check studies bench setup check notebooks pytest
.NOTPARALLEL:

help:
	@echo "make demo     run the main job"
	@echo "make test     run all checks (what CI runs)"
	@echo "make text     notebooks -> .text/*.py, to edit them in a text editor"
	@echo "make sync     .text/*.py -> notebooks, export the package, clean the notebooks"
	@echo "make docs     build the site into _docs/ and README.md"
	@echo "make studies  recompute the committed results of the studies (hours)"
	@echo "make bench    print the benchmarks' ratios"

setup: $(INSTALLED)

$(INSTALLED): constraints.txt pyproject.toml settings.ini tools/setup.sh
	@PYTHON="$(PYTHON)" sh tools/setup.sh

demo: setup
	@python -m tools.demo

test: setup check notebooks docs-check pytest

check:
	@python tools/timed.py "ruff" -- ruff check .
	@python tools/timed.py "ruff format" -- ruff format --check .
	@python tools/timed.py "notebooks clean and exported" -- python tools/exported.py

notebooks:
	@python tools/timed.py "nbdev_test" -- timeout $(NOTEBOOK_LIMIT) nbdev_test --n_workers 2 --timing --do_print

docs-check:
	@python tools/timed.py "docs and README" -- python tools/docs.py --check

pytest:
	@python tools/timed.py "pytest" -- pytest -q -m "not slow"

test-slow: setup
	pytest -q -m slow

text: setup
	jupytext --to .text//py:percent nbs/*.ipynb

sync: setup
	jupytext --sync nbs/*.ipynb
	nbdev_export
	nbdev_clean

docs: setup
	python tools/docs.py

studies: setup
	python -m benchmarks.gate_null
	python -m benchmarks.embedded
	python -m benchmarks.gate_study run --half tuning
	python -m benchmarks.gate_study run --half reporting
	python -m benchmarks.gate_study luck --half reporting --runs 8
	python -m benchmarks.gate_study report

bench: setup
	@for name in log frames gate_speed llm_client rollouts scorer; do echo "== $$name"; python -m benchmarks.$$name; done
