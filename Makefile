# What there is to run; `make help` lists it.

PYTHON := $(or $(VENV),.venv)/bin/python
BIN := $(or $(VENV),.venv)/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test check docs bench lock

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## Install everything for development into .venv
	bin/setup dev

run: ## Start everything on this machine, do a first job, and serve
	bin/run

test: ## Every check and every test, as in continuous integration
	bin/test

check: setup ## Everything but the tests: style, format, types, imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## Write the pages that are made from the code
	$(PYTHON) -m tests.support.docs

bench: ## Measure, and print one table
	bin/bench

lock: ## Resolve pyproject.toml into the hashed requirements files
	bin/lock
