# Every target does its own set-up: a fresh clone needs Python 3.11+, Java 17+ and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JARS := $(VENV)/.jars
DOCS := $(VENV)/.docs
RELEASE := $(VENV)/.release
PICTURES := $(VENV)/.pictures

# The versions that development and CI use, on every supported Python and system; an installed package is not bound by them.
LOCK := requirements/dev.lock
INSTALL := LOCK=$(LOCK) requirements/install $(BIN)/python

# Images for containers often set it. Then every process of every test compiles the package anew (0.8 s where a session is
# attached), and pytest the assertions of all tests for each worker (8 s).
unexport PYTHONDONTWRITEBYTECODE

# Each worker has a Spark session and a broker of its own, and needs one core and 3 GiB.
TEST_WORKERS ?= 2

# Beside them, workers without Spark use the cores while the others wait (tests/support/placement.py); each needs 1 GiB.
LIGHT_WORKERS ?= 1
ALL_WORKERS = $(shell expr $(TEST_WORKERS) + $(LIGHT_WORKERS))
BY_FILES := --dist loadfile --no-loadscope-reorder

# Most tests write many small files: 200 MB those without Spark, 1.2 GB all that `make test` runs.
IN_MEMORY := tests/support/files_in_memory

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-all test-unit test-room test-spark other-setup test-part test-core test-busy check format docs pictures mysql pulsar bench bench-quick proof soak dist clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## make .venv with rw_sql and all that its tests and demo need

# A registry that answers badly once should not fail a build, and the demo's flights are needed by nothing else: the
# installation is tried again, in the end without them; the demo then says that it makes its rows up.
$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "rw_sql needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@for extras in dev,demo dev,demo dev dev; do \
	    echo "installs .[$$extras]"; \
	    $(INSTALL) --editable ".[$$extras]" && exit 0; \
	done; echo "what rw_sql needs could not be installed; the messages are above"; exit 1
	@touch $@

# Versions that are in the file stay as they are: make lock UPGRADE=--upgrade takes the newest of all, and
# UPGRADE="--upgrade-package ruff" that of one. Python 3.11.5 is the oldest that the documentation's tools run on.
lock: ## write requirements/dev.lock anew, from pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.8"
	$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11.5 --extra dev --extra demo --extra docs \
	    --extra release --no-annotate --no-emit-index-url --custom-compile-command "make lock" $(UPGRADE) \
	    --output-file $(LOCK) pyproject.toml

mysql: setup ## fetch MySQL 8.0 and 5.7, which Debian lacks, for the tests of mysql-cdc; needs Maven
	@$(BIN)/python -m tests.support.mysql

pulsar: setup ## fetch Pulsar's broker, some 200 MB from Maven Central, for the tests of pulsar; takes minutes
	@$(BIN)/python -m tests.support.pulsar_server

demo: setup ## move a running source between two Kafka topics, on a year's flights of New York
	@$(BIN)/python examples/demo.py

# Two processes that fill Ivy's cache at once may break it: the jars are fetched before the tests start, and Spark's
# classes kept as Java made them (tests/support/jars.py). Java uses what it kept only for the same class path.
$(JARS): $(READY) tests/support/jars.py tests/support/java.py rw_sql/spark_jars.py rw_sql/runtime/spark/jar_cache.py
	@$(BIN)/python -m tests.support.jars
	@touch $@

# Of the tests that take long, one in so many, drawn by the commit's day (tests/support/seeds.py).
TEST_DRAW ?= 10

# Busy processes beside the tests: make test BUSY=4.
BUSY ?= 0

test: setup $(JARS) ## the tests, and a tenth of the long ones; they start their own brokers, and PostgreSQL, MariaDB, NATS and RabbitMQ where installed
	$(IN_MEMORY) 6000000 $(BIN)/python -m pytest --draw $(TEST_DRAW) --busy $(BUSY) --numprocesses $(ALL_WORKERS) --light $(LIGHT_WORKERS) $(BY_FILES)

test-all: setup $(JARS) ## every test, the long ones too
	$(BIN)/python -m pytest --numprocesses $(ALL_WORKERS) --light $(LIGHT_WORKERS) $(BY_FILES)

# Of the folders that are ignored nearly all needs Spark; collecting them takes as long as a tenth of these tests.
SERVERS := spark or kafka or postgres or mysql or nats or mqtt or pulsar or rabbitmq or registry or s3 or kinesis
UNIT_WORKERS ?= 4

test-unit: setup ## the quick tests that need neither Spark nor a server
	$(IN_MEMORY) 1000000 $(BIN)/python -m pytest -m "not ($(SERVERS)) and not crash and not long" \
	    --numprocesses $(UNIT_WORKERS) $(BY_FILES) --ignore tests/integration --ignore tests/notebooks

# make test-room ROOM=plan/statements/move: a folder below tests/, which has the folders of rw_sql/.
test-room: setup $(JARS) ## the tests of one room: make test-room ROOM=runtime/views
	@test -d "tests/$(ROOM)" -a -n "$(ROOM)" || { echo "make test-room ROOM=<a folder below tests/>"; exit 1; }
	$(BIN)/python -m pytest tests/$(ROOM)

# Another version of Spark than the lock file's, in an environment of its own: make test-spark SPARK=4.0.
SPARK ?= 4.1
OTHER_VENV ?= .venv/spark-$(SPARK)

test-spark: .venv/spark-$(SPARK).lock ## a part of the tests on another version of Spark: make test-spark SPARK=4.0
	$(MAKE) VENV=$(OTHER_VENV) LOCK=$< test-part

other-setup: .venv/spark-$(SPARK).lock
	$(MAKE) VENV=$(OTHER_VENV) LOCK=$< setup

# The lock file's own version stays: delta-spark accepts no newer patch release, which would only be fetched in vain.
.venv/spark-%.lock: requirements/dev.lock
	@mkdir -p .venv
	@sed '/^pyspark==$*\./!s/^pyspark==.*/pyspark==$*.*/' $< >$@

# What differs between versions: Spark's own classes, its planner, its sources and the jars. A file for each kind of object.
PART_OF_TESTS ?= $(CORE_OF_TESTS) tests/connectors/datagen tests/connectors/files tests/connectors/support tests/connectors/kafka \
    tests/integration/test_live_tables.py tests/integration/test_live_undo.py tests/integration/test_restart.py \
    tests/integration/test_strict_json.py tests/integration/test_live_sinks.py tests/integration/test_live_refresh.py \
    tests/integration/test_live_rewind.py tests/integration/test_query_analysis.py \
    tests/integration/test_mistaken_queries.py tests/integration/test_connect.py tests/integration/test_object_store.py

test-part: setup $(JARS)
	$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) $(BY_FILES) $(PART_OF_TESTS)

# The jars, a source that moves, every kind of maintained view, and the files of large batches. One process fetches the
# jars that it needs by itself: all of them, and the archive of classes, take longer.
CORE_OF_TESTS ?= tests/test_spark_jars.py tests/integration/test_definitions.py tests/integration/test_spark_files.py \
    tests/integration/test_maintained_views.py

test-core: other-setup ## the core of the tests on another version of Spark: make test-core SPARK=4.0
	$(OTHER_VENV)/bin/python -m pytest $(CORE_OF_TESTS)

# A sample of the crash and live tests, drawn by a seed, with busy processes beside them; make proof runs them all.
BUSY_TESTS ?= 2
BUSY_SEED ?= 1
BUSY_PROCESSES ?= 8
BUSY_NICE ?= 5

test-busy: setup $(JARS) ## some crash and live tests with eight busy processes beside them
	$(BIN)/python -m pytest --sample $(BUSY_TESTS) --seed $(BUSY_SEED) --busy $(BUSY_PROCESSES) \
	    --busy-nice $(BUSY_NICE) --numprocesses $(TEST_WORKERS) $(BY_FILES)

check: setup ## lint, format, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the code as check wants it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(DOCS): $(READY)
	@$(INSTALL) --editable ".[docs]"
	@touch $@

# Needs no network; a reader's browser fetches what draws the pictures, as mkdocs-material does by itself.
docs: $(DOCS) ## the documentation's site into site/; a link that leads nowhere fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

$(PICTURES): $(READY)
	@$(INSTALL) --editable ".[pictures]"
	@touch $@

# Chromium is the system's (Debian: apt-get install chromium), that of the variable CHROMIUM, or playwright's own.
pictures: $(PICTURES) $(JARS) ## the documentation's pictures, by a real shell, status page and JupyterLab in Chromium
	$(BIN)/python -m pictures

bench: setup ## every benchmark against its peer; writes bench/results.json and docs/benchmarks.md
	$(BIN)/python -m bench

bench-quick: setup ## the quick benchmarks only; writes nothing
	$(BIN)/python -m bench --quick

proof: setup $(JARS) ## the long proofs, each resumable; writes docs/proof/
	$(BIN)/python -m proof --workers $(TEST_WORKERS)

MINUTES ?= 60
SEED ?= 1
# The warehouse is on a disk or in moto's S3; its jobs run in one process (local) or on a standalone cluster of two workers.
# Not called MASTER, which make would pass on to Spark.
WAREHOUSE ?= disk
RUN_ON ?= local

soak: setup $(JARS) ## random statements and faults on one warehouse: make soak MINUTES=30 WAREHOUSE=s3 RUN_ON=cluster
	$(BIN)/python -m soak --minutes $(MINUTES) --seed $(SEED) --warehouse $(WAREHOUSE) --master $(RUN_ON)

$(RELEASE): $(READY)
	@$(INSTALL) --editable ".[release]"
	@touch $@

# The wheel is tried by itself, in a folder and an environment that know nothing of this clone: first light, then whole.
dist: $(RELEASE) ## sdist and wheel in dist/, checked; the wheel is tried in a separate environment
	@rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	@$(PYTHON) -m venv dist/try
	@dist/try/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@cp examples/flights.sql dist/try && cp tests/support/light_install.py dist/try
	@cd dist/try && bin/rw-sql --version && bin/rw-sql check flights.sql && bin/python light_install.py
	@dist/try/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[spark]"
	@cd dist/try && bin/rw-sql source list -w none; test $$? -eq 1
	@cd dist/try && bin/python -c "from rw_sql import connect; import pyspark, delta, pandas"
	@rm -rf dist/try

clean: ## remove what the targets above made, except .venv
	rm -rf .demo dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache bench/.work proof/.work
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
