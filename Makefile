# `make help` lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# What is installed: the package with what it needs, and everything that its tests need, too.
CORE := $(VENV)/.installed-core
STAMP := $(VENV)/.installed
DEMO := demo-out
# The oldest Beam that the package accepts, and what tests it and others: conversion, validation, rebuild, equal bytes.
OLDEST_BEAM := 2.70.0
COMPAT_PACKAGES := pytest pytest-timeout pytest-xdist hypothesis psutil opencv-python-headless scipy tifffile
COMPAT_TESTS ?= tests/contract/golden tests/core/images tests/core/validation \
	tests/commands/test_progress.py tests/commands/test_overwrite_resume.py tests/contract/test_rebuild_same_bytes.py
# Processes that share the tests, a whole module each; the folders with the short ones come last. There are twice as
# many as processors, because many tests wait. Each takes about 1 GB.
TESTERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
# Without bytecode, each process would compile the package and the tests again.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find package pipelines loader transforms core schemas -type d)

.DEFAULT_GOAL := help
.PHONY: help demo uv install lock test package-test compat-test prism-test flink-test airflow-test test-all lint format docs report-picture bench bench-quick bench-docs clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# uv resolves and downloads in seconds. One on the PATH is used; else pip puts one into the environment.
UV = $(or $(shell command -v uv),$(BIN)/uv)
UV_INSTALL = $(UV) pip install --quiet --python $(BIN)/python --constraints constraints.txt \
	--build-constraints constraints.txt --reinstall-package shardwright --config-settings editable_mode=strict

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

uv: | $(BIN)/python
	@command -v uv >/dev/null || test -x $(BIN)/uv || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# A new file changes its folder, and with it the links of the strict editable install.
$(CORE): setup.py pyproject.toml constraints.txt $(SOURCES) | uv
	test -e $(STAMP) || $(UV_INSTALL) --editable .
	test ! -e $(STAMP) || $(MAKE) --no-print-directory $(STAMP)
	touch $(CORE)

$(STAMP): setup.py pyproject.toml constraints.txt $(SOURCES) | uv
	$(UV_INSTALL) --editable '.[tensorflow,dev,docs]'
	touch $(STAMP) $(CORE)

lock: | uv ## write constraints.txt anew: the newest versions that the requirements allow
	echo setuptools | $(UV) pip compile --quiet --upgrade pyproject.toml - --all-extras --universal \
		--python-version 3.11 --no-annotate --no-header --no-emit-index-url --output-file constraints.txt
	echo "apache-beam==$(OLDEST_BEAM) $(COMPAT_PACKAGES)" | tr ' ' '\n' | \
		$(UV) pip compile --quiet --upgrade pyproject.toml - --universal --python-version 3.11 \
		--no-annotate --no-header --no-emit-index-url --output-file constraints-oldest-beam.txt

install: $(STAMP) ## create .venv with all dependencies

demo: $(CORE) ## install, then convert and validate the example images
	$(BIN)/shardwright convert --input examples/photos --output $(DEMO) --overwrite \
		--resize 224 --fit pad --splits train=0.8,validation=0.1,test=0.1 --split_mode stratified
	$(BIN)/shardwright validate --dataset $(DEMO)
	$(BIN)/shardwright inspect $(DEMO) --records 1 --contact_sheet $(DEMO).png
	@echo
	@echo "The dataset is in $(DEMO)/, its pictures are in $(DEMO).png."
	@echo "Open $(DEMO)/report.html in a browser."

test: $(STAMP) ## the test suite without its long tests
	$(BIN)/python -m pytest -rs -m "not corpus and not slow" \
		-n $(TESTERS) --dist loadfile --no-loadscope-reorder

package-test: $(STAMP) uv ## build the wheels and the source distribution, install each in an empty environment, use it there
	$(BIN)/python -m pytest -rs tests/commands/test_installed.py tests/commands/test_house.py::test_reading_without_beam \
		tests/engines/deploy/test_files.py \
		tests/engines/deploy/test_jobs.py::test_the_templates_file_runs_with_only_the_package_installed

# The oldest Beam has versions of its own in constraints-oldest-beam.txt; any other gets the newest that it allows.
COMPAT = build/compat-$(notdir $(PYTHON))-$(BEAM)
COMPAT_CONSTRAINTS = $(if $(filter $(OLDEST_BEAM),$(BEAM)),--constraints constraints-oldest-beam.txt)
compat-test: BEAM ?= $(OLDEST_BEAM)
compat-test: | uv ## test with another Beam or Python: BEAM=2.74.0 PYTHON=python3.13
	rm -rf build/lib
	$(UV) venv --quiet --clear --python $(PYTHON) $(COMPAT)
	$(UV) pip install --quiet --python $(COMPAT) $(COMPAT_CONSTRAINTS) . 'apache-beam==$(BEAM)' $(COMPAT_PACKAGES)
	$(COMPAT)/bin/python -m pytest -m "not slow and not corpus" -n $(TESTERS) --dist loadfile $(COMPAT_TESTS)

prism-test: $(STAMP) ## run the engine tests on Prism; builds it with Go
	PYTHON=$(BIN)/python sh tests/engines/get.sh prism
	$(BIN)/python -m pytest tests/engines -m prism

flink-test: $(STAMP) ## run the engine tests on Flink; gets its job server with Maven
	PYTHON=$(BIN)/python sh tests/engines/get.sh flink
	$(BIN)/python -m pytest tests/engines -m flink

airflow-test: $(STAMP) ## test the DAGs with Airflow; installs it (2 GB)
	test -x build/airflow-venv/bin/python || $(PYTHON) -m venv build/airflow-venv
	build/airflow-venv/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement tests/engines/deploy/airflow-requirements.txt
	$(BIN)/python -m pytest tests/engines/deploy/test_schedulers.py -k dag

test-all: $(STAMP) ## the suite with its long tests, and on real and hostile images: CORPORA=folder
	SHARDWRIGHT_CORPORA=$(CORPORA) $(BIN)/python -m pytest -rs --hypothesis-profile=full \
		-n $(TESTERS) --dist loadfile

lint: $(STAMP) ## check with ruff, mypy and import-linter; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p shardwright
	cd benchmarks && $(abspath $(BIN))/mypy --config-file ../pyproject.toml --disable-error-code misc *.py
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## build the documentation site into build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python docs/site_build/report_screenshot.py build/site/report.webp
	@echo "Open build/site/index.html in a browser."

report-picture: $(STAMP) ## take the picture of the report in the README again; needs Chromium
	$(BIN)/python docs/site_build/report_screenshot.py docs/report.webp

# All benchmarks, or ONLY=names with commas. Without PHOTOS=folder of photographs, they generate their images.
BENCH = $(BIN)/python benchmarks/bench.py $(if $(PHOTOS),--source "$(PHOTOS)") $(if $(ONLY),--only $(ONLY))
bench: $(STAMP) ## run all benchmarks and add them to the history, for hours: PHOTOS=folder ONLY=names
	$(BENCH) --peers

bench-quick: $(STAMP) ## run small sizes of all benchmarks, for some minutes: PHOTOS=folder ONLY=names
	$(BENCH) --quick

bench-docs: $(CORE) ## write docs/BENCHMARKS.md from the history of the benchmarks
	$(BIN)/python benchmarks/page.py

clean: ## remove all files that other targets made
	rm -rf $(VENV) $(DEMO) $(DEMO).png build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
