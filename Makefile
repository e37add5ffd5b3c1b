# Every target sets up what it needs: `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

.PHONY: help install demo test lint bench test-data test-faults test-cluster lock clean

help:
	@echo "make demo         install, then run the main job on a Swiss roll and draw it"
	@echo "make test         install, then lint, types, layers and tests"
	@echo "make lint         only ruff, mypy and the layer contracts"
	@echo "make bench        the benchmark table"
	@echo "make test-faults  kill runs at every operation and see them end the same"
	@echo "make test-cluster servers, workers and schedules that are killed, lost or short of memory"
	@echo "make test-data    tests on real data sets, in the folder named by TRIGPOINT_DATA"
	@echo "make lock         resolve the dependencies again and write the lock files"

install: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "trigpoint needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@echo "Installing into $(VENV) from the lock: up to a minute or two, once."
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > $(VENV)/uv.txt
	@$(PIP) --requirement $(VENV)/uv.txt --require-hashes
	@$(BIN)/uv pip install --quiet --no-cache --python $(BIN)/python --no-deps --require-hashes --requirement requirements-dev.lock || \
	  { echo "uv cannot; pip, which takes longer, may know of another index."; $(PIP) --require-hashes --requirement requirements-dev.lock; }
	@$(PIP) --no-build-isolation --editable .
	@touch $@

demo: install
	$(BIN)/trigpoint demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -m "not faults and not cluster"

bench: install
	$(BIN)/python -m benchmarks

test-data: install
	@test -n "$(TRIGPOINT_DATA)" || { echo "Set TRIGPOINT_DATA to a folder of data sets."; exit 2; }
	TRIGPOINT_DATA="$(TRIGPOINT_DATA)" $(BIN)/pytest -m data

test-faults: install
	$(BIN)/pytest -m faults

test-cluster: install
	$(BIN)/pytest -m cluster

lock: install
	$(BIN)/uv pip compile pyproject.toml --no-strip-extras --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev --constraint requirements.lock --no-strip-extras --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
