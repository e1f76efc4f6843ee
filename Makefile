# `make run` and `make test` are the two commands a newcomer needs; each makes the
# environment it needs in .venv. PYTHON=... overrides the interpreter that is found.
PYTHON ?= $(shell sh tools/find_python.sh)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
WORKERS ?= 2

.PHONY: help run test test-torch lint docs bench clean
.DELETE_ON_ERROR:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

run: .venv/app ## the posterior of a logistic regression on handwritten digits, into runs/digits
	$(BIN)/ergodax infer --data digits --classes 3 8 --held-out 0.2 --reference --output runs/digits

test: .venv/app .venv/test .venv/gallery .venv/browser ## all tests, law tests included
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

TORCH_PYTHON ?= $(shell sh tools/find_python.sh 11 2>/dev/null)

test-torch: ## the bridges to PyTorch, NumPyro and Flax, in .venv-torch on Python 3.11, if there is one
ifeq ($(TORCH_PYTHON),)
	@echo "skipped: the PyTorch bridge is tested on Python 3.11, for which pip has torch without CUDA"
else
	$(MAKE) .venv-torch/made
	.venv-torch/bin/python -m pytest -n $(WORKERS) --dist loadfile tests/bridge \
		tests/unit/test_network_flax.py
	.venv-torch/bin/python -m pytest tests/unit/test_docs.py -k "bridges or networks"
endif

.venv-torch/made: pyproject.toml constraints.txt
	test -x .venv-torch/bin/python || $(TORCH_PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip --disable-pip-version-check --quiet install \
		--constraint constraints.txt torch==2.13.0 --editable '.[test,numpyro,flax]'
	@touch $@

lint: .venv/app .venv/test .venv/gallery .venv/browser .venv/lint ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright
	$(BIN)/lint-imports

docs: .venv/app .venv/docs ## the documentation, into site/
	$(BIN)/mkdocs build --strict

bench: .venv/app .venv/bench ## microseconds a step beside a hand-written loop and BlackJAX
	$(BIN)/python -m benchmarks.run

clean: ## remove the environment and everything built
	rm -rf .venv .venv-torch site runs build dist .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)"
	$(PYTHON) -m venv .venv

.venv/app .venv/test .venv/gallery .venv/browser .venv/lint .venv/docs .venv/bench: .venv/%: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[$*]'
	@touch $@
