# Every target sets up what it needs: a clone, make and Python 3.11 or newer with venv are enough. No root needed.
#
#   make demo       a program of several ranks, on this machine
#   make test       all tests; make test ARGS='tests/protocol -k frames' for some
#   make check      lint, types, imports and layout, each a target of its own
#   make format     puts files and imports into the house format
#   make bench      the benchmarks of benchmarks/
#   make docs       the pages that are generated
#   make clean      removes what these have made, .venv included

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ARGS ?=

.PHONY: setup demo test check lint types imports layout format bench docs clean
.DEFAULT_GOAL := test

setup: .venv/installed

# The stamp is as old as the last installation: a change to what the project depends on, or to the native core, makes a
# new one.
.venv/installed: pyproject.toml setup.py $(wildcard fabric/native/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing hocket and its tools into .venv"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/demo.py

# Not `python -m pytest`: that would make the folders at the top importable by their bare names.
test: setup
	$(BIN)/pytest $(ARGS)

check: lint types imports layout

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports --no-logo

layout: setup
	$(BIN)/pytest --quiet tests/test_layout.py tests/test_wheel.py

format: setup
	$(BIN)/ruff check --fix-only --select I .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: setup
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv build dist src/*.egg-info docs/_build benchmarks/results
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
