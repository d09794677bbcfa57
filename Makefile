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

# Where `make install` puts things; DESTDIR stages them for a package.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
PROGRAM := $(PREFIX)/lib/kvledger
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system
# What keeps the arenas over a stop is known to systemd 254 and later.
SYSTEMD_VERSION ?= $(shell systemctl --version 2>/dev/null | awk 'NR == 1 { print $$2 }')

.PHONY: help demo test test-all faults soak pythons lint kernels gpu explore bench install install-program install-units uninstall clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## four engines, three models, one cache: reuse is proven, the daemon is killed, bytes are damaged
	$(VENV)/bin/kvledger demo $(ARGS)

test: $(READY) ## the default tests, under ten minutes on two cores
	$(PY) -m pytest -m "not slow" --durations=10 $(ARGS)

test-all: $(READY) ## every test, the slow ones included
	$(PY) -m pytest --hypothesis-profile=search --durations=10 $(ARGS)

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

gpu: $(READY) ## on a machine with a GPU: all kernels checked and timed, a model resumed, a graph captured
	$(PY) -m kvledgerd.gpu

explore: $(READY) ## every interleaving of small scopes over the real core, all invariants in every state
	PYTHONPATH=tests $(PY) -m model.exploration $(ARGS)

bench: $(READY) ## every row of the benchmarks, beside its floor or peer (ARGS="acquire --out bench.json")
	$(VENV)/bin/kvledger bench --json $(ARGS)

install: install-program install-units ## program and systemd units below PREFIX (/usr/local), staged in DESTDIR if set

install-program: ## the program alone, in a virtual environment of its own below PREFIX
	$(PYTHON) -m venv --clear $(DESTDIR)$(PROGRAM)
	$(DESTDIR)$(PROGRAM)/bin/python -m pip install --constraint constraints.txt '.[daemon,page]'
	install -d $(DESTDIR)$(PREFIX)/bin
	printf '#!/bin/sh\nexec %s/bin/python -m kvledgerd.cli "$$@"\n' $(PROGRAM) > $(DESTDIR)$(PREFIX)/bin/kvledger
	chmod 755 $(DESTDIR)$(PREFIX)/bin/kvledger

install-units: ## units, user, directories, a first configuration and the pages alone
	install -d $(UNITS) $(DESTDIR)$(PREFIX)/lib/sysusers.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
	install -d $(DESTDIR)$(PREFIX)/share/doc/kvledger/decisions $(DESTDIR)$(SYSCONFDIR)/kvledger
	for unit in kvledger.socket kvledger@.socket kvledger.service kvledger-audit.service kvledger-page.service; do \
		sed -e 's#/usr/local#$(PREFIX)#g' -e 's#/etc/kvledger#$(SYSCONFDIR)/kvledger#g' \
			ops/systemd/$$unit > $(UNITS)/$$unit && chmod 644 $(UNITS)/$$unit || exit 1; \
	done
	if test "$(SYSTEMD_VERSION)" -ge 254 2>/dev/null; then \
		install -D -m 644 ops/systemd/preserve.conf $(UNITS)/kvledger.service.d/preserve.conf; fi
	install -m 644 ops/systemd/kvledger.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/kvledger.conf
	install -m 644 ops/systemd/kvledger.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/kvledger.conf
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/kvledger
	install -m 644 docs/decisions/*.md $(DESTDIR)$(PREFIX)/share/doc/kvledger/decisions
	test -e $(DESTDIR)$(SYSCONFDIR)/kvledger/kvledger.toml || \
		install -m 644 ops/kvledger.toml $(DESTDIR)$(SYSCONFDIR)/kvledger/kvledger.toml

uninstall: ## remove what install has put there; configuration and data stay
	rm -rf $(DESTDIR)$(PROGRAM) $(DESTDIR)$(PREFIX)/share/doc/kvledger $(UNITS)/kvledger.service.d
	rm -f $(UNITS)/kvledger.socket $(UNITS)/kvledger@.socket $(UNITS)/kvledger.service $(UNITS)/kvledger-audit.service
	rm -f $(UNITS)/kvledger-page.service
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/kvledger.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/kvledger.conf
	rm -f $(DESTDIR)$(PREFIX)/bin/kvledger

clean: ## remove .venv and all caches
	rm -rf $(VENV) $(VENV)-3.* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find client kernels storage daemon migrations tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt scripts/bootstrap.py
	@test -n "$(PYTHON)" || { \
		echo "kvledger needs Python 3.11 or newer with its venv module, and found none that runs." >&2; \
		echo "Install one (on Debian and Ubuntu: apt install python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; }
	$(PYTHON) scripts/bootstrap.py $(VENV)
	@touch $@
