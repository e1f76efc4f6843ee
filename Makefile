# `make run` and `make test` are the two commands a newcomer needs. Each target makes the environment
# it needs, in .venv. PYTHON=... overrides the interpreter that is found, VENV=... the folder.
VENV ?= .venv
PYTHON ?= $(shell sh tools/find_python.sh)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: help run test test-units test-slow test-all test-torch lint docs bench release-check gallery clean
.DELETE_ON_ERROR:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

run: $(VENV)/app ## which flights from New York are late: 293,152 rows, report in runs/flights
	$(BIN)/ergodax infer --data flights --held-out 0.1 --nuts --output runs/flights

LAWS := tests/law tests/architecture tests/docs/test_one_file.py

test: $(VENV)/app $(VENV)/learn $(VENV)/test ## every exact law and its negative control
	TYPES=0 $(PYTEST) -m "not slow" $(LAWS)

test-units: $(VENV)/app $(VENV)/learn $(VENV)/test $(VENV)/gallery ## all other quick tests: conformance, parts, refusals
	$(PYTEST) -m "not slow" --ignore tests/slow $(LAWS:%=--ignore %) tests

test-slow: $(VENV)/app $(VENV)/learn $(VENV)/test $(VENV)/gallery $(VENV)/browser ## Monte Carlo laws, experiments, docs
	$(PYTEST) -m slow --doctest-modules tests src

test-all: test test-units test-slow ## all tests but those of `make test-torch`

TORCH_PYTHON ?= $(shell sh tools/find_python.sh 11 2>/dev/null)

test-torch: ## the bridges to PyTorch, NumPyro, Flax and laplax, in .venv-torch on Python 3.11, if there is one
ifeq ($(TORCH_PYTHON),)
	@echo "skipped: the PyTorch bridge is tested on Python 3.11, for which pip has torch without CUDA"
else
	$(MAKE) .venv-torch/made
	.venv-torch/bin/python -m pytest -n $(WORKERS) --dist loadfile tests/bridge \
		tests/unit/test_network_flax.py tests/unit/test_network_linen.py
	.venv-torch/bin/python -m pytest tests/slow/docs -k "bridges or networks"
endif

.venv-torch/made: pyproject.toml constraints.txt
	test -x .venv-torch/bin/python || $(TORCH_PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip --disable-pip-version-check --quiet install \
		--constraint constraints.txt torch==2.13.0 laplax==0.0.2 torch2jax==0.1.0 \
		--editable '.[test,numpyro,flax]'
	@touch $@

lint: $(VENV)/app $(VENV)/learn $(VENV)/test $(VENV)/gallery $(VENV)/browser $(VENV)/lint ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/app $(VENV)/learn $(VENV)/docs ## the documentation, into site/
	$(BIN)/python -m doctest tools/griffe_equations.py tools/mathml.py
	$(BIN)/mkdocs build --strict

bench: $(VENV)/app ## microseconds a step, compared with a hand-written loop and BlackJAX
	$(BIN)/python -m benchmarks steps

release-check: $(VENV)/release ## build the wheel, install and use it on each Python; versions agree
	$(BIN)/python tools/release_check.py

gallery: $(VENV)/app $(VENV)/gallery .cache/gallery/made ## the interactive pages, in the browser
	$(BIN)/python -m gallery

.cache/gallery/made:
	$(BIN)/python -m gallery --compile
	@touch $@

clean: ## remove the environment and everything built
	rm -rf $(VENV) .venv-torch .cache site runs build dist .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)"
	$(PYTHON) -m venv $(VENV)

EXTRAS := app learn test gallery browser lint docs release
$(EXTRAS:%=$(VENV)/%): $(VENV)/%: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[$*]'
	@touch $@
