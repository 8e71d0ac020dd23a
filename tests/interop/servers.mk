# Third-party MCP servers, each in an environment of its own below build/interop, at exact versions.
# `npm --ignore-scripts` always: an install script could do anything to this machine.

INTEROP := build/interop
INTEROP_PY := mcp-server-time==2026.10.19 mcp-server-git==2026.10.19
INTEROP_NPM := @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31

$(INTEROP)/.ready: tests/interop/servers.mk
	mkdir -p $(INTEROP)/npm
	for package in $(INTEROP_PY); do \
	  venv=$(INTEROP)/$${package%%=*}; \
	  $(PYTHON) -m venv $$venv && $$venv/bin/pip install --quiet --disable-pip-version-check $$package || exit 1; \
	done
	npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock --prefix $(INTEROP)/npm $(INTEROP_NPM)
	npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock --prefix $(INTEROP)/npm @msgpack/msgpack@3.1.3
	@touch $@

.PHONY: interop
interop: $(READY) $(INTEROP)/.ready ## install four third-party servers and drive them
	$(BIN)/python -m pytest tests/interop
