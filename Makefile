# Everything a fresh clone needs: Python 3.11 or newer and make. Each target sets up what it uses.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help demo test lint types check bench fuzz reference clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## set up, then read the bundled recording
	$(BIN)/steno show --prices src/steno/demo

test: $(VENV)/.test ## set up, then run the tests
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## mypy --strict
	$(BIN)/mypy

check: lint types test reference ## all that must hold before a commit

reference: $(VENV)/.test ## write the generated reference pages
	$(BIN)/python docs/reference/generate.py

bench: $(VENV)/.bench ## measure beside the competitors, in one run; keeps the table in docs/benchmarks.md
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m benchmarks.read --out docs/benchmarks.md

fuzz: $(VENV)/.test ## a million mutated lines: no exception, no lost line
	$(BIN)/python -m tests.fuzz --count 1000000

clean: ## remove what was set up
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "steno needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[all]'
	$(BIN)/python -m compileall -q src  # an installed program starts from bytecode; so does this one
	@touch $@

$(VENV)/.test: pyproject.toml requirements/test.txt | $(VENV)/bin/python
	$(PIP) install -e '.[all]' -r requirements/test.txt
	$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.test
	$(PIP) install -r requirements/bench.txt
	@touch $@
