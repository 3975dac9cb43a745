# Each target sets up .venv from nothing when it has to; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Processes for the tests: two keep within the memory of a small machine.
WORKERS ?= 2

.PHONY: demo test test-fast test-long coverage lint format hooks words bench examples clean help

help:            ## say what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*##/\t/'

# torch comes first and pinned: asked for by another package, it would bring gigabytes for GPUs that may not be there.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Sightline needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)   ## train a small attention model on built-in data, score it, draw what it attends to
	$(BIN)/sightline demo

test: $(READY)   ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long"

test-long: $(READY) ## run the tests that take minutes, then all others with shapes checked and without kernels
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long
	SIGHTLINE_SHAPES=on SIGHTLINE_KERNELS=off $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long and not browser"

test-fast: $(READY) ## run some tests of every package, in under 90 seconds on two cores
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "fast and not slow and not browser"

coverage: $(READY) ## run the tests and report which lines they run (slower than test)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not long"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

lint: $(READY)   ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put the code into its style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(READY)  ## check style and types before every commit
	$(BIN)/pre-commit install

words: $(READY)  ## count names and words that the project does not use
	$(BIN)/python benchmarks/words.py

bench: $(READY)  ## measure time and memory, write benchmarks/RESULTS.md (leave the machine alone meanwhile)
	$(BIN)/python benchmarks/attention.py --write

examples: $(READY) ## draw the pictures of examples/
	for example in examples/*.py; do $(BIN)/python $$example || exit 1; done

clean:           ## remove what was set up and what was made
	rm -rf $(VENV) runs build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage htmlcov
