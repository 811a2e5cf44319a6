# dlq: every target sets itself up; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PY := $(BIN)/python
UV = $(shell command -v uv || echo build/uv/bin/uv)
UV_ENV := UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
LOCK := requirements.lock
STAMP := .venv/.stamp
SHIM_DIR := nodeagent/dlq_nodeagent/shim
SHIM := $(SHIM_DIR)/dlq-shim

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 12

.PHONY: setup
setup: $(STAMP) $(SHIM)  ## make .venv from the lock and compile the shim

# uv comes from the package index when the machine has none; nothing outside the tree is touched.
build/uv/bin/uv:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
	  --target build/uv uv 2>/dev/null \
	|| { $(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv; }

$(STAMP): $(LOCK) pyproject.toml hatch_build.py | $(filter build/%,$(UV))
	[ -x $(PY) ] || $(UV_ENV) $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV_ENV) $(UV) pip sync --quiet --python $(PY) --require-hashes $(LOCK)
	$(UV_ENV) $(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	touch $(STAMP)

# No sources or no compiler: nothing is built, and the agent says what it misses.
$(SHIM): $(wildcard $(SHIM_DIR)/*.c $(SHIM_DIR)/*.h) hatch_build.py | $(STAMP)
	$(PY) hatch_build.py

.PHONY: lock
lock: | $(filter build/%,$(UV))  ## pin every dependency anew (all extras, dev and proto groups)
	$(UV_ENV) UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --upgrade --universal \
	  --python-version 3.11 --all-extras --group dev --group proto --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --output-file $(LOCK) pyproject.toml
