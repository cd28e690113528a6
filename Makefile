# Everything happens in .venv; give VENV=… for another place, PYTHON=… for another interpreter (3.11 or newer).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
SOURCES := src tests
ROUNDS ?= 2
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
CHROMIUM := $(shell command -v chromium 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt lint type arch gen unit prop golden cases patched check integ browser browser-deps observe-deps test test-compose test-engines bench clean \
	dist constraints

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) ## make .venv with everything that developing needs

demo: $(RUNTIME) ## make .venv with what running needs, and run the demo
	$(BIN)/servebench demo

fmt: $(DEV) ## format the code and mend what ruff can mend
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: $(DEV) ## formatting and lint rules
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

type: $(DEV) ## mypy, strict, on code and tests
	$(BIN)/mypy

arch: $(DEV) ## who may import whom, and how large files and functions may grow
	$(BIN)/lint-imports
	$(PYTEST) -q tests/unit/test_structure.py

gen: $(DEV) ## write what is generated from the code (git diff shows whether it was up to date)
	$(BIN)/python -m servebench.metrics.docs docs/metrics.md docs/dialects.md
	$(BIN)/python -m servebench.metrics.grafana dashboards

unit: $(DEV) ## unit tests
	$(PYTEST) -q tests/unit

prop: $(DEV) ## property tests
	$(PYTEST) -q tests/property

golden: $(DEV) ## captured streams of real servers and hard cases
	$(PYTEST) -q tests/golden

cases: $(DEV) ## the hard cases over real sockets, a line each
	$(PYTEST) -q -s tests/integration/test_every_case.py

patched: $(DEV) ## tests that import Locust, which patches the whole process, so they have one of their own
	$(PYTEST) -q tests/patched

check: lint type arch ## the fast part of `make test`: lint, types, architecture, unit, property, golden
	$(PYTEST) -q tests/unit tests/property tests/golden
	$(PYTEST) -q tests/patched

integ: $(DEV) observe-deps ## real servers, masters and workers; the wheel in an empty folder
	$(PYTEST) tests/integration

browser: $(DEV) browser-deps ## report and web page in headless Chromium
	$(PYTEST) tests/browser

browser-deps: ## install Chromium where it is missing and we may (root on Debian); tests skip without it
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	else echo "no chromium: the browser tests will be skipped (apt-get install chromium)"; fi
endif

observe-deps: ## install Prometheus and Grafana's schema where they are missing and we may; tests skip without them
	@command -v promtool >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus; } \
		|| echo "no prometheus: its tests will be skipped (apt-get install prometheus)"
	@[ -e tests/grafana/node_modules ] || { command -v npm >/dev/null \
		&& npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/grafana; } \
		|| echo "no schema of Grafana: its test will be skipped (npm install --prefix tests/grafana)"

test: check integ browser ## everything that CI runs

test-compose: $(DEV) ## containers: a master, three workers, one killed in mid-run (root on Debian; skipped elsewhere)
	@tests/compose/run.sh $(BIN)/python

test-engines: $(DEV) ## servers of other projects, each in an environment of its own; ENGINES=always: the two small ones only
	ENGINES=$(ENGINES) $(PYTEST) -s tests/engines

test-dialects: $(DEV) ## other load tools beside ours on one server (they install into .cache/peers: 20 GB; skipped if not)
	@tests/dialects/setup.sh
	$(PYTEST) -q -rs tests/dialects
	$(BIN)/python -m tests.dialects.observed docs/dialects-observed.md

bench: $(DEV) ## print what the tool itself costs beside the floors, in some 12 minutes; asserts no time
	@uptime
	$(BIN)/python -m tests.bench.bench_decode 0.2
	$(BIN)/python -m tests.bench.bench_tls
	$(BIN)/python -m tests.bench.bench_cases p256 p512 u32 fast --rounds $(ROUNDS)
	$(BIN)/python -m tests.bench.bench_whole p256 p512 u256 --rounds $(ROUNDS)
	$(BIN)/python -m tests.bench.bench_whole s512 o800 --rounds 1
	$(BIN)/python -m tests.bench.bench_dispatch --rounds $(ROUNDS)
	$(BIN)/python -m tests.bench.bench_desk
	$(PYTEST) -q -s tests/bench/bench_flush.py tests/bench/bench_sim.py
	@uptime

dist: $(DEV) ## build wheel and source archive into dist/
	$(BIN)/python -m build --no-isolation

constraints: $(DEV) ## write the versions of .venv into constraints.txt
	$(PIP) freeze --exclude-editable | grep -v ' @ ' > constraints.txt

clean: ## remove what builds and checks leave behind; .venv and runs stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; give another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }
	$(PIP) install --quiet --upgrade 'pip>=25.1'

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV): $(RUNTIME)
	$(PIP) install --quiet --constraint constraints.txt --group dev
	@touch $@
