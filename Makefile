# `make help` lists the targets. Finished steps leave a stamp in .stamps/ and are not done again.

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
MODEL := .cache/smollm2-135m-instruct
STAMPS := .stamps
DATA ?= ../shared/data/jsonschemabench.jsonl.gz
REQUIREMENTS := requirements-cpu.txt requirements-dev.txt constraints-cpu.txt

export VLLM_NO_USAGE_STATS := 1
export MLFLOW_UV_AUTO_DETECT := false

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check bench soak serve clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMPS)/env $(MODEL)/.complete ## Build the environment and the small real model (once)

demo: setup ## Register the small model, serve it, ask it the worked example, print the answers
	@$(PY) -m scripts.demo

test: setup ## Run the test suite, all but what `make test-slow` runs
	@$(PY) -m pytest -m "not slow" $(ARGS)

test-slow: setup ## Run the tests of Spark clusters, whole notebooks and slow faults (8 GB, 30 minutes)
	@$(PY) -m pytest -m slow $(ARGS)

check: setup ## Lint and type-check (ruff, mypy strict)
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

bench: setup ## Measure masks, coverage, serving and batch scoring (DATA=file of schemas)
	@test -f "$(DATA)" || { echo "bench: no schemas at $(DATA); use make bench DATA=file"; exit 1; }
	@$(PY) -m benchmarks.masks "$(DATA)"
	@$(PY) -m benchmarks.coverage "$(DATA)"
	@$(PY) -m benchmarks.serving
	@$(PY) -m benchmarks.scale

soak: setup ## Run mixed calls, disconnects, bad rows and engine kills for 10 minutes
	@$(PY) -m benchmarks.soak $(ARGS)

serve: setup ## Serve registered models on this machine through Databricks' serving REST API
	@$(PY) -m serving $(ARGS)

clean: ## Remove what the targets above built
	rm -rf $(VENV) $(STAMPS) .cache .pytest_cache .mypy_cache .ruff_cache

$(STAMPS)/env: scripts/setup_env.sh $(REQUIREMENTS)
	@scripts/setup_env.sh $(VENV) $(PYTHON)
	@mkdir -p $(STAMPS) && touch $@

$(MODEL)/.complete: $(STAMPS)/env scripts/small_model.py
	@$(PY) -m scripts.small_model $(MODEL)
	@touch $@
