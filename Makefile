# Everything a fresh clone needs: Python 3.11 or newer and make. Each target sets up what it uses.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
CLIS   := $(foreach version,2.1.197 2.1.325,.cli/claude-$(version)/node_modules/.bin/claude)
CLIS   += .cli/codex-0.166.0/node_modules/.bin/codex .cli/copilot-1.0.102/node_modules/.bin/copilot
CLIS   += .cli/gemini-0.61.0/node_modules/.bin/gemini .cli/qwen-0.15.10/node_modules/.bin/qwen
CLIS   += .cli/opencode-1.18.33/node_modules/.bin/opencode

.PHONY: help demo test cli lint types check bench accuracy fuzz reference clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## set up, then the whole way with recorded agents: run, verdict, ledger, report
	@$(BIN)/steno demo

test: $(VENV)/.test ## set up, then run the tests
	$(BIN)/python -m pytest -n auto

cli: $(CLIS) ## install the real agents that some tests run; needs npm

.cli/claude-%/node_modules/.bin/claude:
	npm install --no-audit --no-fund --prefix .cli/claude-$* @anthropic-ai/claude-code@$*

.cli/codex-%/node_modules/.bin/codex:
	npm install --no-audit --no-fund --prefix .cli/codex-$* @openai/codex@$*

.cli/copilot-%/node_modules/.bin/copilot:
	npm install --no-audit --no-fund --prefix .cli/copilot-$* @github/copilot@$*

.cli/gemini-%/node_modules/.bin/gemini:
	npm install --no-audit --no-fund --prefix .cli/gemini-$* @google/gemini-cli@$*

.cli/qwen-%/node_modules/.bin/qwen:
	npm install --no-audit --no-fund --prefix .cli/qwen-$* @qwen-code/qwen-code@$*

.cli/opencode-%/node_modules/.bin/opencode:
	npm install --no-audit --no-fund --prefix .cli/opencode-$* opencode-ai@$*

lint: $(VENV)/.test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## mypy --strict
	$(BIN)/mypy

check: lint types test reference ## all that must hold before a commit

reference: $(VENV)/.test ## write the generated reference pages
	$(BIN)/python docs/reference/generate.py

bench: $(VENV)/.bench .bench/.peers ## measure beside the competitors, in one run; keeps the tables in docs/benchmarks.md
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m benchmarks.read --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.ledger --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.passing --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.concurrent --out docs/benchmarks.md

accuracy: $(VENV)/.test .bench/.peers ## one known session in many shapes: our totals and the competitors' against the agent's own
	$(BIN)/python -m benchmarks.accuracy --out docs/benchmarks.md

fuzz: $(VENV)/.test ## a million mutated lines: no exception, no lost line
	$(BIN)/python -m tests.fuzz --count 1000000

clean: ## remove what was set up
	rm -rf $(VENV) .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

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

.bench/.peers: requirements/peers.txt benchmarks/peers.py | $(VENV)/bin/python
	$(BIN)/python -m benchmarks.peers
	@touch $@
