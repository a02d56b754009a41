# `make help` lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo-out
# Processes that share the tests, a whole module each; the folders with the short ones come last.
TESTERS ?= 2
SOURCES := $(shell find pipelines loader transforms schemas -type d)

.DEFAULT_GOAL := help
.PHONY: help demo install test prism-test flink-test test-all lint format bench bench-large clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A new file changes its folder, and with it the links of the strict editable install.
$(STAMP): setup.py pyproject.toml $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[tensorflow,dev]' --config-settings editable_mode=strict
	touch $(STAMP)

install: $(STAMP) ## a virtual environment in .venv with everything in it

demo: $(STAMP) ## install, convert and validate the example pictures, and where to look
	$(BIN)/shardwright convert --input examples/photos --output $(DEMO) --overwrite \
		--resize 224 --fit pad --splits train=0.8,validation=0.1,test=0.1
	$(BIN)/shardwright validate --dataset $(DEMO)
	$(BIN)/shardwright inspect $(DEMO) --records 1 --contact_sheet $(DEMO).png
	@echo
	@echo "The dataset is in $(DEMO)/, begin with $(DEMO)/dataset.json; its pictures are in $(DEMO).png."

test: $(STAMP) ## the whole test suite
	$(BIN)/python -m pytest -rs -m "not corpus and not slow" \
		-n $(TESTERS) --dist loadfile --no-loadscope-reorder

prism-test: $(STAMP) ## the engine tests on Prism, which it builds with Go
	PYTHON=$(BIN)/python sh tests/engines/get.sh prism
	$(BIN)/python -m pytest tests/engines -m prism

flink-test: $(STAMP) ## the engine tests on Flink, whose job server it fetches with Maven
	PYTHON=$(BIN)/python sh tests/engines/get.sh flink
	$(BIN)/python -m pytest tests/engines -m flink

test-all: $(STAMP) ## the suite with its long tests, and on real and hostile images: CORPORA=folder
	SHARDWRIGHT_CORPORA=$(CORPORA) $(BIN)/python -m pytest

lint: $(STAMP) ## ruff and mypy; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p shardwright.schemas -p shardwright.transforms -p shardwright.loader -p shardwright.pipelines

format: $(STAMP) ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## this project beside its peers: PHOTOS=folder of photographs
	sh benchmarks/bench.sh "$(PHOTOS)"

clean: ## remove what the other targets made
	rm -rf $(VENV) $(DEMO) $(DEMO).png build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
