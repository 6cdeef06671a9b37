# Everything runs in an environment of its own: .venv, made from the locked requirements.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
NODE_TOOLS := interop/node/node_modules/installed

.PHONY: demo test check source bench conformance soak interop lock clean

demo: $(INSTALLED)  ## run the main job for real, in a temporary folder
	@$(BIN)/python demo/run.py

test: $(INSTALLED)  ## the whole suite
	$(BIN)/python -bb -W error -m pytest -n 3

check: source test  ## format, lint, strict types, import contracts, tests

source: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)  ## real daemons, medians with spread
	$(BIN)/python -m bench

conformance: $(INSTALLED) $(NODE_TOOLS)  ## the official MCP suite against /mcp, in both revisions (needs npm)
	$(BIN)/python -m interop.conformance

soak: $(INSTALLED)  ## the long form of docs/PROOF.md, kill -9 and power cuts by the thousand: make soak MINUTES=60
	$(BIN)/python -m soak --minutes $(or $(MINUTES),10)
	LEVER_SOAK=1 $(BIN)/python -m pytest -n 2 -rP tests/proof/test_every_call.py
	LEVER_SOAK=1 $(BIN)/python -m tests.model
	$(BIN)/python -m tests.fuzz $(or $(MINUTES),10)

interop: $(INSTALLED) $(NODE_TOOLS)  ## official MCP clients against `lever agent mcp` (needs npm and the package index)
	$(BIN)/python -m interop.run

$(INSTALLED): requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(NODE_TOOLS): interop/node/package.json interop/node/package-lock.json
	cd interop/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile pyproject.toml --universal --generate-hashes -p 3.11 -q -o requirements.lock
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes -p 3.11 -q -o requirements-dev.lock

clean:
	rm -rf $(VENV)
