PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help

.PHONY: help
help: ## show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml client_stub/pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c tests/constraints.txt --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -c tests/constraints.txt -e ./client_stub -e '.[dev]'
	$(BIN)/python -m compileall -q daemon/treadle client_stub/treadle_client # an editable install does not
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

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: $(READY) ## fuzz the pure core for FUZZ_SECONDS
	cd tests && ../$(BIN)/python -m support.fuzz $(FUZZ_SECONDS)

.PHONY: chaos
chaos: $(READY) ## two minutes of kills, floods and reloads (CHAOS_SECONDS, CHAOS_SEED)
	$(BIN)/python -m pytest tests/chaos/test_chaos.py

SDK := build/bench/sdk

$(SDK)/.ready: Makefile
	$(PYTHON) -m venv $(SDK)
	$(SDK)/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0
	@touch $@

.PHONY: bench
bench: $(READY) $(SDK)/.ready ## measure against the raw pipe, a socket hop and the official SDK
	$(BIN)/python tests/benchmarks/bench.py

.PHONY: bench-gate
bench-gate: $(READY) $(SDK)/.ready ## the same, and fail when a steady ratio is twice its must, twice (CI)
	$(BIN)/python tests/benchmarks/bench.py --gate --slack 2

.PHONY: bench-full
bench-full: $(READY) $(SDK)/.ready ## the same, longer, with 100 servers; writes docs/benchmark.svg
	$(BIN)/python tests/benchmarks/bench.py --full --json build/bench/full.json --svg docs/benchmark.svg

NODE_VERSION := 24.22.3
MCPORTER_VERSION := 0.12.3
MCP_HUB_VERSION := 4.2.1
FASTMCP_VERSION := 4.2.3
MCP_BROKER_VERSION := 2.1.1
PEERS := node mcporter mcp-hub fastmcp mcp-broker sdk
NPM_INSTALL = npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock --prefix $(@D)

build/bench/node/.ready: Makefile
	$(NPM_INSTALL) node-$$(node -p 'process.platform + "-" + process.arch')@$(NODE_VERSION)
	@touch $@

build/bench/mcporter/.ready: Makefile
	$(NPM_INSTALL) mcporter@$(MCPORTER_VERSION)
	@touch $@

build/bench/mcp-hub/.ready: Makefile
	$(NPM_INSTALL) mcp-hub@$(MCP_HUB_VERSION)
	@touch $@

build/bench/fastmcp/.ready: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check fastmcp==$(FASTMCP_VERSION)
	@touch $@

build/bench/mcp-broker/.ready: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check mcp-broker==$(MCP_BROKER_VERSION)
	@touch $@

.PHONY: bench-peers
bench-peers: $(READY) ## measure beside mcporter, mcp-hub, FastMCP and mcp-broker, those that can be installed
	@$(MAKE) --no-print-directory --keep-going $(PEERS:%=build/bench/%/.ready) || echo 'what is not there is left out'
	$(BIN)/python tests/benchmarks/peers.py

.PHONY: soak
soak: $(READY) ## 100,000 calls beside rude clients: memory and descriptors stay flat
	$(BIN)/python tests/chaos/soak.py --calls 100000

.PHONY: bench-linear
bench-linear: $(READY) ## measure that a large message costs its size
	$(BIN)/python tests/benchmarks/linear.py --gate 3

.PHONY: thorough
thorough: $(READY) ## search longer: property tests and random listings
	RANDOM_LISTINGS=5000 $(BIN)/python -m pytest tests/unit --hypothesis-profile thorough
