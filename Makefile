# Every target sets up .venv by itself when it is missing or older than what it is made from.
# A fresh machine needs Python 3.11 or newer, make and git, no more.
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

# What follows the command of a target: make test ARGS="-k tidy", make demo ARGS=--json
ARGS ?=

# python3 if it is one of the tested versions, else the newest of them, else any newer python3. Each candidate is run,
# since a version manager leaves shims on the path that only print an error; ensurepip is what Debian splits off.
PYTHON ?= $(shell \
	runs() { command -v "$$1" >/dev/null && "$$1" -c "import sys, venv, ensurepip; sys.exit(not $$2)" >/dev/null 2>&1; }; \
	for p in python3 python3.13 python3.12 python3.11; do \
		runs $$p "(3, 11) <= sys.version_info < (3, 14)" && echo $$p && exit; \
	done; \
	runs python3 "(3, 14) <= sys.version_info" && echo python3)

.PHONY: help demo test test-all faults soak pythons lint kernels explore bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## four engines, three models, one cache: reuse is proven, the daemon is killed, bytes are damaged
	$(VENV)/bin/kvledger demo $(ARGS)

test: $(READY) ## the default tests, under ten minutes on two cores
	$(PY) -m pytest -m "not slow" --durations=10 $(ARGS)

test-all: $(READY) ## every test, the slow ones included
	$(PY) -m pytest --durations=10 $(ARGS)

faults: $(READY) ## every fault of the regimen, counted: power cuts, kills, damage, failing calls (ARGS=--short for a part)
	PYTHONPATH=tests $(PY) -m support.faults $(ARGS)

pythons: ## core, storage and replay on each of Python 3.11 to 3.13 that is here, in environments of their own
	$(PYTHON) scripts/pythons.py

soak: $(READY) ## an hour at full capacity: 8 engines, random kills, every read verified (ARGS="--seconds 600")
	PYTHONPATH=tests $(PY) -m support.soak $(ARGS)

lint: $(READY) ## ruff with every rule, its formatter, mypy strict
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m mypy scripts/bootstrap.py $(wildcard tests/typing/*.py)

kernels: $(READY) ## each kernel bit for bit against its reference
	$(PY) -m kvledger_kernels.check $(ARGS)

explore: $(READY) ## every interleaving of small scopes over the real core, all invariants in every state
	PYTHONPATH=tests $(PY) -m model.exploration $(ARGS)

bench: $(READY) ## every row of the benchmarks, beside its floor or peer (ARGS="acquire --out bench.json")
	$(VENV)/bin/kvledger bench --json $(ARGS)

clean: ## remove .venv and all caches
	rm -rf $(VENV) $(VENV)-3.* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find client kernels storage daemon tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt scripts/bootstrap.py
	@test -n "$(PYTHON)" || { \
		echo "kvledger needs Python 3.11 or newer with its venv module, and found none that runs." >&2; \
		echo "Install one (on Debian and Ubuntu: apt install python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; }
	$(PYTHON) scripts/bootstrap.py $(VENV)
	@touch $@
