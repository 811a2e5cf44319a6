# dlq: every target sets itself up; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Of `make gpu`: it has PyTorch. If it is older than dlq allows, GPU_JOB_PYTHON names it, for jobs.
GPU_PYTHON ?= python3
GPU_JOB_PYTHON ?=
# `make test VENV=build/matrix/3.12 PYTHON=python3.12` leaves the usual environment as it is.
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
UV = $(shell command -v uv || echo build/uv/bin/uv)
UV_TOOL = $(filter build/%,$(UV))
# The system's certificates where it has some: networks with a CA of their own are common.
CERTIFICATES := $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt)
ifneq ($(CERTIFICATES),)
export UV_SYSTEM_CERTS := true
export PIP_CERT ?= $(firstword $(CERTIFICATES))
endif
export UV_PYTHON_DOWNLOADS := never
# Tests start hundreds of interpreters: what one has compiled is for all.
unexport PYTHONDONTWRITEBYTECODE
export UV_NO_PROGRESS := 1
LOCK := requirements.lock
STAMP := $(VENV)/.stamp
SHIM_DIR := nodeagent/dlq_nodeagent/shim
SHIM := $(SHIM_DIR)/dlq-shim
FRONT_DIR := client/dlq_compat/front
FRONT := $(FRONT_DIR)/dlq-front
PROFILER_LIB := profiler/dlq_profiler/lib/libdlqprof.so
TORCH_STAMP := .venv-torch/.stamp
FRAMEWORKS_STAMP := .venv-frameworks/.stamp
DOCS_STAMP := .venv-docs/.stamp
NEEDS_FRAMEWORKS = $(filter lightning submitit hf framework% podman podman-framework%,$(or $(ONLY),framework))
# Marked tests need more than a fresh machine, or more than two minutes; they have their own targets.
NOTHING_SPECIAL := not (e2e or torture or attack or podman or netns or systemd or slurm or strangers or browser or torch or frameworks or profiler)
# What runs PyTorch or a framework in them needs an environment that make e2e makes.
CONTAINERS := podman and not (torch or frameworks)
N ?= 30
# Many tests wait for processes of theirs: more workers than cores. The files that wait longest come
# first in the order of names, and xdist would keep them for the end.
WORKERS ?= 3
IN_ORDER := --dist loadfile --no-loadscope-reorder
# A single test of these may take longer than pyproject.toml allows for a hang; and where the machine lacks
# what they need, so that all of them skip, the target fails and says what to install.
PATIENT := -o faulthandler_timeout=3600 -rs --fail-if-all-skip

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 12

# Said at once, in the agent's words (shim/binary.py): without the shim no node would ever be up.
COMPILER = $(or $(if $(filter-out default undefined,$(origin CC)),$(CC)),$(shell \
  command -v cc || command -v gcc || command -v clang),no-compiler)
.PHONY: compiler
compiler:  ## see that there is a C compiler that works
	@printf '#include <stdio.h>\n' | $(COMPILER) -fsyntax-only -x c - 2>/dev/null || { printf '%s\n' \
	  "the launch shim cannot be built: there is no C compiler, or no C library to compile with." \
	  'Install gcc or clang (for example `apt-get install gcc libc6-dev`) and run make again.' >&2; exit 1; }

.PHONY: setup
setup: compiler $(STAMP) $(SHIM) $(PROFILER_LIB) $(FRONT)  ## make .venv from the lock and compile the shim, the profiler and the front

# uv comes from the package index when the machine has none; nothing outside the tree is touched.
build/uv/bin/uv:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
	  --target build/uv uv 2>/dev/null \
	|| { $(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv; }

# uv does not read pip's configuration: where only that knows the way to an index, pip goes.
SYNC_BY_PIP = { $(PYTHON) -m venv --clear $(VENV) && \
  $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK); }

$(STAMP): $(LOCK) pyproject.toml hatch_build.py | $(UV_TOOL)
	[ -x $(PY) ] || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(PY) --require-hashes $(LOCK) || $(SYNC_BY_PIP)
	$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	touch $(STAMP)

$(SHIM): $(wildcard $(SHIM_DIR)/*.[ch] $(SHIM_DIR)/init/*.[ch] $(SHIM_DIR)/tasks/*.c $(SHIM_DIR)/output/*.c $(SHIM_DIR)/steps/*.[ch] $(SHIM_DIR)/stdin/*.[ch]) hatch_build.py | $(STAMP)
	$(PY) hatch_build.py

$(FRONT): $(wildcard $(FRONT_DIR)/*.[ch]) hatch_build.py | $(STAMP)
	$(PY) hatch_build.py
	install -m 755 $(FRONT) $(BIN)/dlq

# The same: jobs run without a profile.
$(PROFILER_LIB): $(wildcard profiler/include/*.h profiler/src/*/*.[ch]) hatch_build.py | $(STAMP)
	$(PY) hatch_build.py

.PHONY: lock
lock: | $(UV_TOOL)  ## pin every dependency anew (all extras and groups)
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --upgrade --universal \
	  --python-version 3.11 --all-extras --group dev --group demo --group proto --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --output-file $(LOCK) pyproject.toml
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --upgrade --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --output-file docs/site/requirements.lock docs/site/requirements.in
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --upgrade --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --output-file tests/fuzz/requirements.lock tests/fuzz/requirements.in

.PHONY: docs
docs: reference $(DOCS_STAMP)  ## build the documentation as a site that can be searched, in build/site
	.venv-docs/bin/mkdocs build --quiet
	@echo "open build/site/index.html"

# The pages and pictures that are generated from the code; tests fail when they are not fresh.
.PHONY: reference
reference: setup  ## write the generated pages, pictures and man pages of docs anew
	PYTHONPATH=tests $(PY) tests/support/reference_pages.py
	PYTHONPATH=tests $(PY) tests/support/diagrams.py
	PYTHONPATH=tests $(PY) tests/support/state_charts.py
	PYTHONPATH=tests $(PY) tests/support/man_pages.py

.PHONY: proto
proto: $(STAMP)  ## regenerate proto/gen from proto/dlq/v1
	$(PY) proto/generate.py

.PHONY: fmt
fmt: $(STAMP)  ## format and sort imports
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

.PHONY: check
check: setup  ## style, types, layers, and generated code that follows from its source
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PY) proto/generate.py --check

# Directories of which no test is taken: reading them costs every worker a second.
ELSEWHERE := $(addprefix --ignore=tests/,browser e2e slurm systemd)

# A run of tests leaves the names of those that failed, and its exit code, for make test-failed.
RUNS := build/tests
run_tests = run=$(RUNS)/$(1) code=0; mkdir -p $$run; $(PY) -m pytest -q -o cache_dir=$$run
and_its_code = || code=$$?; echo $$code > $$run/code; exit $$code

# Parts of the tests that run side by side, the longest first. A part collects only its own files: xdist
# would let every worker collect all of them. `others` takes the folders that no other part names.
PARTS := unit integration_p_z integration_a_o others control worlds
FILES_integration_a_o := $(wildcard tests/integration/test_[a-o]*.py)
FILES_integration_p_z := $(wildcard tests/integration/test_[p-z]*.py)
FILES_control := tests/unit/master/control
FILES_unit := tests/unit --ignore=tests/unit/house --ignore=$(FILES_control)
FILES_worlds := tests/sim tests/property tests/world
FILES_others := tests/unit/house $(filter-out $(addprefix tests/,browser e2e integration property sim slurm support systemd unit world), \
  $(sort $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.py)))))

.PHONY: test
test: setup  ## the tests of every day: all that need nothing special, but those that repeat a smaller one
	rm -rf $(RUNS)
	$(MAKE) --no-print-directory --keep-going --output-sync=target --jobs=$(WORKERS) $(PARTS:%=test-part-%)

.PHONY: $(PARTS:%=test-part-%)
$(PARTS:%=test-part-%): test-part-%: setup
	$(call run_tests,$*) $(FILES_$*) -m '$(NOTHING_SPECIAL) and not long' $(and_its_code)

# What `make test` leaves out: it repeats a smaller test with real daemons, or on more random worlds.
.PHONY: test-rest
test-rest: setup  ## the tests that repeat a smaller one of make test (marker long): real daemons, more worlds
	rm -rf $(RUNS)
	$(call run_tests,rest) -n $(WORKERS) $(IN_ORDER) $(ELSEWHERE) -m '$(NOTHING_SPECIAL) and long' $(and_its_code)

.PHONY: test-failed
test-failed: setup  ## the tests that failed in the last make test or make test-rest, once more and one by one
	$(PY) tests/support/failed_again.py $(RUNS)

.PHONY: test-long
test-long: setup  ## both of them with every seed, setting and random example (tests/support/extent.py), and coverage
	LONG=1 $(PY) -m pytest -q -n $(WORKERS) $(IN_ORDER) $(ELSEWHERE) -m '$(NOTHING_SPECIAL)' --cov --cov-report=
	$(MAKE) --no-print-directory coverage

# Daemons run in processes of their own, which are not measured: the true share is higher.
.PHONY: coverage
coverage:  ## what the last `make test-long` ran in its own processes, by package; build/coverage/html has the lines
	$(PY) tests/support/coverage_by_package.py
	$(PY) -m coverage html --quiet --directory build/coverage/html

# What depends most on the interpreter: values that go from process to process.
BETWEEN_PROCESSES := $(addprefix tests/,unit/master/planner unit/master/control/forecast/test_twin_process.py sim/test_twin.py \
  sim/test_snapshots.py fault/test_planner.py fault/test_twin_deaths.py fault/test_promise_kills.py fault/test_deadline_kills.py)

.PHONY: test-processes
test-processes: setup  ## planner, twin and promises alone, for another interpreter: VENV=build/stock PYTHON=/usr/bin/python3
	$(PY) -m pytest -q -n $(WORKERS) $(IN_ORDER) -m '$(NOTHING_SPECIAL)' $(BETWEEN_PROCESSES)

.PHONY: matrix
matrix:  ## make test on each Python there is, stock and 3.11 to 3.14; MATRIX="python3.12 ..." names them
	$(PYTHON) tests/support/matrix_trial.py $(MATRIX)

.PHONY: demo
demo: setup  ## a cluster of your own, training real models; KEEP=1 leaves it up
	$(PY) examples/demo/run.py

.PHONY: demo-slo
demo-slo: setup  ## deadlines on a full virtual cluster: promised and kept, refused with an offer, a node killed
	$(PY) examples/demo/slo.py

.PHONY: demo-loan
demo-loan: setup  ## a day of inference load in two minutes: servers are lent, trained on, and taken back
	$(PY) examples/demo/loan.py

.PHONY: demo-cost
demo-cost: setup  ## machines rented from a failing provider where being late costs more, and given back; the master is killed; POLICY=gpuaas-... chooses them
	POLICY='$(POLICY)' $(PY) examples/demo/cost.py

.PHONY: demo-ha
demo-ha: setup  ## two masters and a PostgreSQL pair: the leader is killed, stopped, told to leave, and the database killed; no job notices (Debian: postgresql)
	$(PY) examples/demo/ha.py

.PHONY: demo-many
demo-many: setup  ## three clusters and one door: jobs with deadlines go to the best offer, one cluster is cut off, one emptied, one inside a real Slurm (Debian: slurm-wlm munge; root); JOBS=200
	JOBS='$(JOBS)' $(PY) examples/demo/many.py

.PHONY: demo-web
demo-web: setup  ## a cluster to look at in a browser: it says the address, and goes on until Ctrl-C
	$(PY) examples/demo/page.py

.PHONY: e2e
e2e: setup $(TORCH_STAMP) $(if $(NEEDS_FRAMEWORKS),$(FRAMEWORKS_STAMP))  ## real processes on loopback, with torchrun; ONLY=podman-ddp, netns, hostile, ... selects
	$(PY) -m pytest -q $(PATIENT) tests/e2e $(if $(ONLY),-k '$(subst -,_,$(ONLY))')

.PHONY: podman
podman: setup  ## containers: as root (Debian: podman conmon runc busybox-static docker-registry); with PyTorch: make e2e ONLY=podman
	$(PY) -m pytest -q $(PATIENT) -m '$(CONTAINERS)' tests

.PHONY: slurm
slurm: setup  ## dlq outgrows its own node into a real Slurm (Debian: slurm-wlm munge; root)
	$(PY) -m pytest -q $(PATIENT) tests/slurm

# The system's Python: test accounts may run it. What nobody pins here, the lock of each group does.
STRANGERS := workflows python parsl hub more mpi lightning
STRANGERS_PYTHON := $(firstword $(wildcard /usr/bin/python3) $(PYTHON))
STRANGERS_STAMPS := $(STRANGERS:%=.strangers/%/.stamp) .strangers/dlq/.stamp .strangers/proxy/.stamp

.strangers/%/.stamp: tests/strangers/requirements/%.lock | $(UV_TOOL)
	$(UV) venv --quiet --clear --python $(STRANGERS_PYTHON) .strangers/$*
	$(UV) pip sync --quiet --link-mode copy --python .strangers/$*/bin/python --require-hashes $<
	touch $@

# PyTorch only by pip, as below.
.strangers/lightning/.stamp: | $(UV_TOOL)
	$(UV) venv --quiet --clear --seed --python $(STRANGERS_PYTHON) .strangers/lightning
	.strangers/lightning/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(TORCH_PIP_ARGS) torch==2.13.0 numpy lightning==2.6.6
	touch $@

.strangers/dlq/.stamp: $(LOCK) pyproject.toml | $(UV_TOOL)
	$(UV) venv --quiet --clear --python $(STRANGERS_PYTHON) .strangers/dlq
	$(UV) pip sync --quiet --link-mode copy --python .strangers/dlq/bin/python --require-hashes $(LOCK)
	$(UV) pip install --quiet --python .strangers/dlq/bin/python --no-deps --no-build-isolation --editable .
	touch $@

.strangers/proxy/.stamp:
	mkdir -p .strangers/proxy && cd .strangers/proxy && npm install --silent configurable-http-proxy@5.3.0
	touch $@

.PHONY: lock-strangers
lock-strangers: | $(UV_TOOL)  ## pin the programs of tests/strangers anew
	for group in $(filter-out lightning,$(STRANGERS)); do $(UV) pip compile --quiet --upgrade --python-version 3.11 \
	  --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	  --output-file tests/strangers/requirements/$$group.lock tests/strangers/requirements/$$group.in || exit 1; done

.PHONY: differ
differ: setup  ## Slurm's answers beside dlq's, 641 calls (root; Debian: slurm-wlm slurmdbd mariadb-server munge); ARGS=--record writes them down
	PYTHONPATH=tests $(PY) -m differ $(ARGS)

.PHONY: strangers
strangers: setup $(STRANGERS_STAMPS)  ## programs that drive Slurm, on dlq and on Slurm (root; Debian: slurm-wlm munge npm); ONLY=snakemake, ... selects
	$(PY) -m pytest -q $(PATIENT) tests/strangers $(if $(ONLY),-k '$(subst -,_,$(ONLY))')

BROWSER_STAMP := .venv-browser/.stamp

$(BROWSER_STAMP): $(LOCK) pyproject.toml tests/browser/requirements.lock | $(UV_TOOL)
	$(UV) venv --quiet --clear --python $(PY) .venv-browser
	$(UV) pip sync --quiet --python .venv-browser/bin/python --require-hashes $(LOCK)
	$(UV) pip install --quiet --python .venv-browser/bin/python --require-hashes -r tests/browser/requirements.lock
	$(UV) pip install --quiet --python .venv-browser/bin/python --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: chromium
chromium:  ## the browser of make browser: the one that is there, or Debian's by apt-get (root)
	@tests/support/chromium.sh

TYPES_DIR := tests/browser/types
TSC := $(TYPES_DIR)/node_modules/.bin/tsc
NPM_CI = (cd $(TYPES_DIR) && npm ci --silent --no-audit --no-fund) && touch $(TSC)

$(TSC): $(TYPES_DIR)/package-lock.json
	$(NPM_CI)

.PHONY: script-types
script-types: $(TSC)  ## the types of the scripts of dlq web's pages, by TypeScript (npm)
	$(TSC) -p $(TYPES_DIR)

.PHONY: browser
browser: setup chromium $(BROWSER_STAMP)  ## the pages of dlq web in a real browser; SHORT=1 some of it; pictures in build/browser
	@if [ $(TSC) -nt $(TYPES_DIR)/package-lock.json ] || { $(NPM_CI); }; then $(TSC) -p $(TYPES_DIR); else echo \
	  '=== NOT CHECKED: the types of the scripts, since npm gives no TypeScript here' >&2; fi
	.venv-browser/bin/python -m pytest -q $(PATIENT) -m 'browser$(if $(SHORT), and short)' tests/browser

.PHONY: monitoring
monitoring: setup  ## alert rules with and without a fault, and the page of a live master, by promtool
	promtool=$$(tests/support/promtool.sh); rules=deploy/monitoring/alerts.yml; \
	"$$promtool" check rules $$rules; "$$promtool" test rules $${rules%.yml}_test.yml; \
	PROMTOOL=$$promtool $(PY) -m pytest -q $(PATIENT) tests/integration/test_metrics_live.py

COMMA := ,
FUZZ_STAMP := .venv-fuzz/.stamp

$(FUZZ_STAMP): tests/fuzz/requirements.lock | $(UV_TOOL) $(STAMP)
	$(UV) venv --quiet --clear --python $(PY) .venv-fuzz
	$(UV) pip sync --quiet --python .venv-fuzz/bin/python --require-hashes $<
	touch $@

.PHONY: api-fuzz
api-fuzz: setup $(FUZZ_STAMP)  ## hostile calls of the HTTP API of dlq web, by schemathesis; SHORT=1 half a minute, EXAMPLES=40 SEED=1
	PYTHONPATH=tests $(PY) tests/support/api_fuzz.py --seed $(or $(SEED),1) --examples $(or $(EXAMPLES),40) \
	  --phases $(if $(SHORT),coverage,coverage$(COMMA)fuzzing)

.PHONY: systemd
systemd: setup  ## two booted hosts: the runbook from install to remove, and dlq up with logins and reboots (needs root)
	$(PY) -m pytest -q -x $(PATIENT) tests/systemd

.PHONY: profiler
profiler: setup $(TORCH_STAMP)  ## the profiler's libraries and analysis, the slow tests too, on real trainings by PyTorch
	$(PY) -m pytest -q $(PATIENT) tests/profiler tests/unit/profiler $(wildcard tests/e2e/test_profiler_*.py)

.PHONY: bench
bench: setup $(TORCH_STAMP)  ## measure; figures beside their goals and conditions, and one table at the end
	$(PY) -m benchmarks.run

.PHONY: reproduce
reproduce: setup  ## the tables and figures of docs/policies/reproduction from this commit, in 15 minutes; FULL=1 the whole, a night; ONLY='case or page' DRAFT=1
	$(PY) -m benchmarks.reproduce $(ONLY) $(if $(FULL),--full) $(if $(DRAFT),--draft) --workers $(or $(PROCESSES),2)

.PHONY: race
race: setup  ## dlq beside a real Slurm, line by line (root; Debian: slurm-wlm munge libslurm-dev; for its line: .venv/bin/pip install hyperqueue); ONLY=line,line REPEAT=5 SHORT=1 or FULL=1 PAGE=1 JSON=FILE
	$(PY) -m benchmarks.race $(subst $(COMMA), ,$(ONLY)) --repeat $(or $(REPEAT),5) $(if $(SHORT),--short) $(if $(FULL),--full) \
	  $(if $(PAGE),--page) $(if $(JSON),--json > $(JSON))

.PHONY: torture
torture: setup  ## kill the daemons N times under load: make torture N=30
	N=$(N) $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fault

# No `setup`: the host may have no network, no compiler and another Python; bare.py says what it lacks.
.PHONY: gpu
gpu:  ## dlq on the GPUs of this host, in 8 minutes and without a network; ONLY='facts killed' OUT=DIR STAND_IN=numpy
	$(GPU_PYTHON) benchmarks/gpu/bare.py $(ONLY) $(if $(OUT),--out $(OUT)) $(if $(STAND_IN),--stand-in $(STAND_IN)) \
	  $(if $(GPU_JOB_PYTHON),--job-python $(GPU_JOB_PYTHON))

.PHONY: gpu-rounds
gpu-rounds:  ## suspend a training N times on the first GPU of this host, and compare its losses: make gpu-rounds ROUNDS=200 STAND_IN=numpy
	$(GPU_PYTHON) benchmarks/gpu/bare.py --rounds $(or $(ROUNDS),200) $(if $(STAND_IN),--stand-in $(STAND_IN)) \
	  $(if $(GPU_JOB_PYTHON),--job-python $(GPU_JOB_PYTHON))

.PHONY: gpu-wheels
gpu-wheels: setup  ## wheels of our daemons for a GPU host without a network, in build/gpu-wheels: FOR=3.12 HAVE='numpy scipy'
	$(PY) -m benchmarks.gpu.wheels $(or $(FOR),3.11) $(PYTHON) $(if $(HAVE),--have $(HAVE))

.PHONY: prove
prove: setup  ## campaigns that try to break the promises about failures; ONLY='kills partitions' FULL=1, PART=3/10 a part of the full form; PAGE=1 writes docs/reliability.md
	$(PY) -m benchmarks.prove $(ONLY) $(if $(FULL),--full) $(if $(PART),--part $(PART)) $(if $(PAGE),--page)

.PHONY: world
world: setup  ## a whole cluster in one process, seed after seed: make world SEEDS=1000 SEED=1; STATES=1 fails where an interesting state is not reached
	PYTHONPATH=tests $(PY) -m world seeds --seeds $(or $(SEEDS),1000) --seed $(or $(SEED),1) --workers $(or $(PROCESSES),2) \
	  $(if $(STATES),--every-state)

.PHONY: world-bugs
world-bugs: setup  ## plant known bugs in the world, and say how many seeds it takes to find each: make world-bugs BUGS='name name' MOST=1000
	PYTHONPATH=tests $(PY) -m world bugs $(BUGS) --most $(or $(MOST),1000) --workers $(or $(PROCESSES),2)

.PHONY: disks
disks: setup  ## N injections of bad disks into files and writers, from a seed: make disks N=300 SEED=1
	N=$(or $(N),300) SEED=$(or $(SEED),1) $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fault/test_disks.py

.PHONY: storm
storm: setup  ## random load and trouble over many lease boundaries: make storm BOUNDARIES=300 SEED=1
	BOUNDARIES=$(or $(BOUNDARIES),300) SEED=$(or $(SEED),1) POLICY=$(or $(POLICY),dlq) \
	  $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fault/test_storms.py

.PHONY: fuzz
fuzz: setup  ## bad messages and failing handlers hurt their senders only: make fuzz MESSAGES=1000000 SEED=1
	MESSAGES=$(or $(MESSAGES),1000000) SEED=$(or $(SEED),1) $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fuzz

.PHONY: ha
ha: setup  ## two masters on three PostgreSQL servers take over from each other under load (Debian: postgresql; root for full disks): make ha TAKEOVERS=200 SEED=1 FAULTS='failover lagging'
	FAULTS='$(FAULTS)' TAKEOVERS=$(or $(TAKEOVERS),200) SEED=$(or $(SEED),1) DLQ_NEED_POSTGRES=1 \
	  $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fault/test_takeovers.py

.PHONY: upgrades
upgrades: setup  ## the last release and this tree take turns under load, and lose nothing: make upgrades N=100 SEED=1
	N=$(if $(filter command line,$(origin N)),$(N),100) SEED=$(or $(SEED),1) \
	  $(PY) -m pytest -q -s $(PATIENT) -m torture tests/fault/test_upgrades.py

.PHONY: attack
attack: setup  ## forged messages, every caller at every method, hostile jobs, kills: make attack MINUTES=10 SEED=1 (root)
	MINUTES=$(or $(MINUTES),10) SEED=$(or $(SEED),1) $(PY) -m pytest -q -s $(PATIENT) -m attack tests/attack

.PHONY: identical
identical: setup  ## every recorded plan, journal, replay and spec is as it was: for refactorings
	EVERY=1 $(PY) -m pytest -q $(PATIENT) tests/identical

.PHONY: record
record: setup  ## record them anew, after a change of behaviour that is wanted
	PYTHONPATH=tests $(PY) tests/support/recorded.py

.PHONY: record-v1
record-v1: setup  ## record calls of the HTTP API that are new; what v1 has told once it tells for ever
	PYTHONPATH=tests $(PY) tests/support/v1_calls.py

.PHONY: package
package: setup | $(UV_TOOL)  ## build the wheel, install it with each extra into empty venvs, run it; time a new user to the first job
	UV=$(UV) PYTHONPATH=tests $(PY) tests/support/package_trial.py

.PHONY: clean
clean:  ## remove everything that make made, the environments included
	rm -rf .venv .venv-browser .venv-fuzz tests/browser/types/node_modules .venv-torch .venv-frameworks .venv-docs build dist .demo .e2e .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache $(SHIM) $(SHIM_DIR)/dlq-init $(SHIM_DIR)/dlq-tasks $(SHIM_DIR)/dlq-output $(SHIM_DIR)/dlq-steps $(SHIM_DIR)/dlq-stdin $(FRONT) profiler/dlq_profiler/lib
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# PyTorch only by pip (uv would take the CUDA build), and only into an environment of its own.
# TORCH_PIP_ARGS can name a CPU-only index.
$(DOCS_STAMP): docs/site/requirements.lock
	[ -x .venv-docs/bin/python ] || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

$(TORCH_STAMP):
	[ -x .venv-torch/bin/python ] || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_PIP_ARGS) \
	  torch==2.13.0 numpy
	touch $(TORCH_STAMP)

# What is built on PyTorch, in an environment apart: users of the one need not have the others.
$(FRAMEWORKS_STAMP):
	[ -x .venv-frameworks/bin/python ] || $(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(TORCH_PIP_ARGS) torch==2.13.0 numpy lightning==2.6.6 submitit==1.5.4 \
	  transformers==5.23.0 accelerate==1.15.0
	touch $(FRAMEWORKS_STAMP)
