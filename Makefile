# Every target sets up what it needs on a fresh clone: a virtual environment in the checkout, Debian's headers
# where they are missing, and the native module, rebuilt when its sources changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
STAMPS := build/stamps
NATIVE_SOURCES := $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt) CMakeLists.txt pyproject.toml
# The editable install maps the Python files it found, so a new or removed one asks for another.
PYTHON_FILES := $(shell find transferqueue workers controller -name '*.py' | sort | md5sum | cut -c1-12)

# One thread per process: the tests and the demo run many processes on few cores.
export OMP_NUM_THREADS ?= 1
# Ray starts its workers at niceness 15 by default, which makes every number a measure of the neighbours.
export RAY_worker_niceness ?= 0

.PHONY: help demo demo-notice ppo examples dev test test-python test-ray test-faults test-others test-native test-alone bench bench-quick soak soak-hours fuzz lint format typing-tree clean setup peers verl

help:
	@echo "make setup   the environment .venv with everything installed; make demo and make test do it themselves"
	@echo "make demo    train a small model with GRPO; the controller ships only metadata (about 6 minutes, 2 GB)"
	@echo "make ppo     the same task with PPO: actor and critic in the same processes (about 3 minutes)"
	@echo "make examples   the two short ones: a model on several ranks, texts without a model (about a minute)"
	@echo "make test    everything that must hold (under 12 minutes)"
	@echo "make bench   every claim against every peer (under 15 minutes); writes docs/benchmarks.md"
	@echo "make bench-quick   our own claims in a few rounds (under 2 minutes); make soak: the long crash and chaos runs"
	@echo "make soak-hours   a GRPO-like load for 2 hours (HOURS=...): memory, mappings, index and latency must stay flat"
	@echo "make fuzz    every decoder of foreign bytes, FUZZ_SECONDS (60) each; make soak does it for half an hour each"
	@echo "make lint    ruff, mypy, pyright; make clean: removes what the targets made"

INSTALLED := $(STAMPS)/installed-$(PYTHON_FILES)

setup: $(INSTALLED)

# $(call apt_install,PACKAGES)
define apt_install
SUDO=""; [ "$$(id -u)" = 0 ] || SUDO="sudo"; \
	($$SUDO apt-get install -y -qq $(1) || ($$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq $(1))) >>build/apt.log 2>&1 \
	|| { echo "cannot install $(1) (see build/apt.log); install it and run make again"; exit 1; }
endef

$(STAMPS)/headers:
	@mkdir -p $(STAMPS)
	@if [ ! -e /usr/include/lmdb.h ] || [ ! -e /usr/include/doctest/doctest.h ]; then $(call apt_install,liblmdb-dev doctest-dev); fi
	@touch $@

# What builds the native module, and (setuptools, wheel) a package that the examples need and that comes as source only;
# the rest comes with it, from the lists in pyproject.toml.
$(STAMPS)/python: constraints.txt pyproject.toml
	@mkdir -p $(STAMPS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt scikit-build-core nanobind ninja cmake setuptools wheel
	@touch $@

# The editable install keeps tests and examples on the checkout; pause points are what the crash tests stop at.
# (Without make's flags: ninja would look for make's job server, which it was not given.)
INSTALL := MAKEFLAGS= $(PIP) install -q --no-build-isolation -c constraints.txt -C cmake.define.TQ_PAUSE_POINTS=ON -e
$(INSTALLED): $(STAMPS)/headers $(STAMPS)/python $(NATIVE_SOURCES)
	$(INSTALL) '.[example,compat,checkpoint,metrics]'
	@rm -f $(STAMPS)/installed-* && touch $@

# What tests/model searches the models of the protocols with. After the headers: there is one apt at a time.
$(STAMPS)/spin: | $(STAMPS)/headers
	@mkdir -p $(STAMPS)
	@if ! command -v spin >/dev/null; then $(call apt_install,spin); fi
	@touch $@

# What tests and lint need beyond that; the demo does without.
$(STAMPS)/dev: constraints.txt pyproject.toml | $(INSTALLED) $(STAMPS)/spin
	$(INSTALL) '.[test,lint]'
	@touch $@

dev: $(INSTALLED) $(STAMPS)/dev

demo: demo-notice setup
	$(BIN)/python -m examples.grpo $(ARGS)

demo-notice:
	@echo "make demo: set-up (about 2 GB of packages in $(VENV), once), then training: about 6 minutes in all on 2 cores"

ppo: setup
	$(BIN)/python -m examples.ppo $(ARGS)

examples: setup
	$(BIN)/python -m examples.tensor_parallel
	$(BIN)/python -m examples.dedup

# The Python tests wait much (for deaths, deadlines, Ray): three runs of them share the cores; lint and the sanitizer
# builds use what is left, at a lower priority, the latter beside the set-up already. `make lint` answers in a minute.
test:
	@$(MAKE) --no-print-directory -j5 --output-sync=target lint test-native test-ray test-faults test-others
	@$(MAKE) --no-print-directory test-alone

test-python: test-ray test-faults test-others test-alone

# What mostly works on Ray clusters, what kills, stops and races processes, and the rest: about the same time each.
PYTEST := $(BIN)/python -m pytest -q -m "not soak and not timing and not alone" --durations=10
ON_RAY := tests/contract tests/e2e
FAULTS := tests/crash tests/race tests/hostile tests/field_cases
test-ray: dev verl
	$(PYTEST) $(ON_RAY)

test-faults: dev
	$(PYTEST) $(FAULTS)

test-others: dev
	$(PYTEST) tests $(patsubst %,--ignore=%,$(ON_RAY) $(FAULTS) tests/typing)

# What measures, and what needs a dead session to stay: the next one that starts anywhere on this machine removes it.
test-alone: dev
	$(BIN)/python -m pytest tests -q -m "(timing or alone) and not soak" --durations=10

SANITIZERS := address thread
test-native: $(STAMPS)/headers $(STAMPS)/python
	@set -e; export MAKEFLAGS=; for sanitizer in $(SANITIZERS); do \
	  echo "== native tests under the $$sanitizer sanitizer"; \
	  $(BIN)/cmake -S tests/native -B build/native-$$sanitizer -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DTQ_SANITIZE=$$sanitizer -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O0 -g1" >build/cmake-$$sanitizer.log; \
	  nice -n 10 $(BIN)/cmake --build build/native-$$sanitizer; \
	  nice -n 10 $(BIN)/ctest --test-dir build/native-$$sanitizer --output-on-failure --timeout 240 -j 2; \
	done

bench: setup peers
	$(BIN)/python -m bench.run $(ARGS)

bench-quick: setup
	$(BIN)/python -m bench.run --quick $(ARGS)

# The peer pins other versions of what we use, so it lives in an environment of its own.
peers: $(STAMPS)/peers
$(STAMPS)/peers: bench/baselines/requirements.txt
	@mkdir -p $(STAMPS)
	test -x .venv-peer/bin/python || $(PYTHON) -m venv .venv-peer
	.venv-peer/bin/pip --disable-pip-version-check install -q torch==2.13.0
	.venv-peer/bin/pip --disable-pip-version-check install -q -r bench/baselines/requirements.txt
	@touch $@

# verl, for tests/e2e/verl: 20 MB in a folder of its own, because it pins an older tensordict and its wheel holds a
# top-level package `tests`. Without it those tests are skipped.
verl: $(STAMPS)/verl
$(STAMPS)/verl: tests/e2e/verl/requirements.txt | $(STAMPS)/dev
	@rm -rf build/verl
	@$(PIP) install -q --no-deps --no-compile --target build/verl -r $< && touch $@ \
	  || { rm -rf build/verl; echo "cannot install verl: tests/e2e/verl will be skipped; make verl tries again"; }

soak: dev $(STAMPS)/atheris
	$(BIN)/python -m pytest tests -q -m soak --timeout 3600 -s

# A long run of so many hours; its tables are printed at the end.
HOURS ?= 2
soak-hours: dev
	TQ_LONG_RUN_HOURS=$(HOURS) $(BIN)/python -m pytest tests/soak -q -m soak -k test_hours -s

# Native targets with libFuzzer where a clang has it, Python ones with atheris where it can be installed; else by mutation.
FUZZ_SECONDS ?= 60
fuzz: dev $(STAMPS)/atheris
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) $(ARGS)

$(STAMPS)/atheris: constraints.txt | $(STAMPS)/dev
	@$(PIP) install -q -c constraints.txt atheris || echo "no atheris for this Python: its targets are fuzzed without coverage"
	@touch $@

# The type checkers see the folders as they are installed: one package. tests/typing asks them about a user's code.
typing-tree:
	@rm -rf build/typing && mkdir -p build/typing
	@cp -rl transferqueue build/typing/ && cp -rl workers controller build/typing/transferqueue/

lint: dev typing-tree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	nice -n 5 $(BIN)/mypy
	nice -n 5 $(BIN)/pyright
	nice -n 5 $(BIN)/python -m pytest tests/typing -q

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf build dist .venv .venv-peer .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks examples/*/runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
