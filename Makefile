# `make help` lists the targets. Everything runs in .venv, which is made and kept up to date on its own.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Spark, the largest package, runs on a JVM only: it is installed where there is a `java`, also when that comes later.
comma := ,
EXTRAS := dev$(if $(shell command -v java 2>/dev/null),$(comma)spark)
READY := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
# The same SEED gives the same random topologies.
N ?= 1000
# The optional extension is built by the installation, where there is a C compiler.
NATIVE := setup.py $(wildcard streamkit/native/*)
RELEASE = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# A folder of topologies/.
EXAMPLE ?= word-count
SEED ?= 1
# Without bytecode each process of a test would compile everything, and pytest rewrite every test.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
# How many processes run tests. Each has a broker of its own. Three keep two cores busy, because tests also wait: for brokers,
# time-outs and commands.
JOBS ?= 3
# Files of tests lie in memory where programs there may run and there is room: on a disk the tests take a quarter more CPU time, and
# wait for it. Those of fast tests are 150 MB; the folders of brokers and of Spark need more.
# What passed is deleted at once.
IN_MEMORY = $(shell [ "$$(df --output=avail -m /dev/shm 2>/dev/null | tail -1)" -ge $(1) ] 2>/dev/null && ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo TMPDIR=/dev/shm)
KEEP := -o tmp_path_retention_policy=failed
MINUTES ?= 10
SEEDS ?= 1000
# Tests that run programs in Java on the version that KAFKA_TEST_VERSION names: random topologies, internal topics, and the
# bytes and the state of applications on a broker.
BESIDE_JAVA := tests/fuzz tests/broker/test_same_bytes.py tests/broker/test_moving_from_java.py
# Further options of a soak: python -m tests.chaos --help.
OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-older check lint types generated format generate bench bench-quick bench-spark bench-shufflebench bench-nexmark fuzz anchor chaos simulate memory attacks screenshots vscode site clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "streamkit needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "the venv module is missing (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(BASE): pyproject.toml $(NATIVE) | $(BIN)/pip
	@echo "Installing streamkit into $(VENV) …"
	@$(PIP) --editable .
	@# Where Python is told to write no bytecode, every command would compile everything.
	@$(BIN)/python -m compileall -q streamkit cli
	@touch $@

# Beyond what the demo needs: test tools, all extras, Spark where Java is.
$(READY): pyproject.toml $(NATIVE) | $(BIN)/pip
	@echo "Installing what development needs into $(VENV) …"
	@$(PIP) --no-compile --editable '.[$(EXTRAS)]'
	@# Packages are compiled as they are imported: most of their modules never are.
	@$(BIN)/python -m compileall -q streamkit cli
	@touch $(BASE) $@

demo: $(BASE) ## Run an example with no broker: make demo EXAMPLE=click-stream
	@$(BIN)/streamkit demo $(EXAMPLE)

test: $(READY) ## Run all tests (a Kafka broker is started for those that need one: java and Maven)
	@$(call IN_MEMORY,6000) $(PYTEST) -rs --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(KEEP)

test-fast: $(READY) ## Run the tests within one process, in under 90 s (no broker, no JVM, no browser, no Spark)
	@$(call IN_MEMORY,1000) $(PYTEST) -m fast --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(KEEP)

check: lint types generated ## Lint, check formats and types, and compare generated files with their sources

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

generated: $(READY)
	$(BIN)/python -m streamkit.spec.language_reference --check docs/language
	$(BIN)/python -m streamkit.spec.topology_schema --check
	$(BIN)/python -m streamkit.spec.step_methods --check
	$(BIN)/python -m streamkit_cli.reference --check docs
	$(BIN)/python -m streamkit_cli.shell_files --check .
	$(BIN)/python -m streamkit.testing.case_schema --check
	$(BIN)/python -m streamkit.runtime.spark.submission.job_schema --check

format: $(READY) ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(READY) ## Write the generated files: references, schemas, man pages, completions
	$(BIN)/python -m streamkit.spec.language_reference --write docs/language
	$(BIN)/python -m streamkit.spec.topology_schema
	$(BIN)/python -m streamkit.spec.step_methods
	$(BIN)/python -m streamkit_cli.reference --write docs
	$(BIN)/python -m streamkit_cli.shell_files --write .
	$(BIN)/python -m streamkit.testing.case_schema
	$(BIN)/python -m streamkit.runtime.spark.submission.job_schema

bench: $(READY) ## Compare with Kafka Streams on one broker, then bench-spark (java and Maven; an hour)
	@$(BIN)/python -m tests.bench.run
	@$(BIN)/python -m tests.bench.stores
	@$(MAKE) bench-spark

bench-quick: $(READY) ## Compare the engine alone with plain loops; fails when it has become much slower
	@$(BIN)/python -m tests.bench.engine

bench-spark: $(READY) ## Compare batch jobs with PySpark by hand (java; some minutes)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.bench.spark --rates 1,2,4,8

bench-shufflebench: $(READY) ## Run ShuffleBench beside Kafka Streams and Flink: throughput, latency, killed instances (java and Maven; an hour)
	@$(BIN)/python -m tests.bench.shufflebench

bench-nexmark: $(READY) ## Run the queries of Nexmark beside Kafka Streams and Flink (java and Maven; an hour)
	@$(BIN)/python -m tests.bench.nexmark

attacks: $(READY) ## Run topologies that would exhaust the machine; print what each ends in, its seconds and MB
	@$(BIN)/python -m tests.compile.attack_table

fuzz: $(READY) ## Compare N random topologies with Kafka Streams (java, Maven): make fuzz N=1000 SEED=1
	@$(BIN)/python -m tests.fuzz.run --n $(N) --seed $(SEED)

test-older: $(READY) ## Run the tests that run Kafka Streams with an older version of it, which VERSION names, by default 4.3.1 (java, Maven)
	@KAFKA_TEST_VERSION=$(or $(VERSION),4.3.1) $(PYTEST) -rs $(BESIDE_JAVA)

anchor: $(READY) ## Report what another version of Kafka Streams changes (java, Maven): make anchor VERSION=4.3.1
	@$(BIN)/python -m tests.java.anchor $(VERSION) --n $(N)

simulate: $(READY) ## Run simulated clusters, each from a seed, with faults in any order: make simulate SEEDS=1000 SEED=1
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(SEED)

chaos: $(READY) ## Kill, stop and fence instances and the broker for some time, then look for gaps and repeats: make chaos MINUTES=10 SEED=1 OPTIONS="--engine rocksdb"
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED) $(OPTIONS)

memory: $(READY) ## Run at a steady rate and look whether memory, files and state grow: make memory MINUTES=60
	@$(BIN)/python -m tests.memory --minutes $(MINUTES)

screenshots: $(READY) ## Take the pictures in docs/screenshots again (chromium, prometheus)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.browser.screenshots docs/screenshots
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.browser.spark_page docs/screenshots

vscode: ## Build the extension of VS Code, build/streamkit.vsix (Node 20 and npm)
	@mkdir -p build
	@cd editors/vscode && npm ci && npm run build && npm run package -- --out ../../build/streamkit.vsix

site: $(READY) ## Build the site of docs/ into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f deploy/site/mkdocs.yml -d $(CURDIR)/build/site/$(RELEASE)
	@echo build/site/$(RELEASE)/index.html

clean: ## Remove .venv and what tools leave behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
