PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help

.PHONY: help
help: ## show what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml client_stub/pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c tests/constraints.txt -e ./client_stub -e '.[dev]'
	@touch $@

.PHONY: env
env: $(READY) ## create the environment in .venv

.PHONY: test
test: $(READY) ## run the whole test suite
	$(BIN)/python -m pytest

.PHONY: test-systemd
test-systemd: $(READY) ## test the service in a private systemd (as root; leaves nothing behind)
	$(BIN)/python tests/systemd/sandbox.py $(BIN)/python -m pytest tests/systemd

.PHONY: lint
lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: run
run: $(READY) ## start the daemon, list, call, shut down, show the evidence
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh config/try.sh

include tests/interop/servers.mk
