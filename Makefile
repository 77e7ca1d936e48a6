# Every target makes what it needs: on a fresh clone `make test` is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AUDIT := .audit
AUDIT_READY := $(AUDIT)/.ready
PEERS := .peers
PEERS_READY := $(PEERS)/.ready

.PHONY: setup setup-browser demo check test slow fuzz bench docs security-tests audit peers lock clean

setup: $(READY)

# Versions are pinned for our own work only; users get the ranges of pyproject.toml.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

# Browser tests drive Debian's Chromium; they are skipped where there is none.
setup-browser:
	command -v chromium > /dev/null || (apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends chromium)

demo: $(READY)
	$(BIN)/headwise demo

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --quiet tests/unit/test_import_order.py

# On all cores; each process has one torch thread (tests/conftest.py).
test: $(READY)
	$(BIN)/pytest --numprocesses auto --dist worksteal

slow: $(READY)
	$(BIN)/pytest -m slow

# A minute of random input for each parser; FUZZ_MINUTES=10 for more.
fuzz: $(READY)
	$(BIN)/pytest -m slow tests/fuzz

bench: $(READY)
	$(BIN)/python benchmarks/step.py

# docs/cli.md, from the commands themselves.
docs: $(READY)
	$(BIN)/python docs/cli.py

# docs/security-tests.md: attacks on a server, and what another client notices. Takes minutes.
security-tests: $(READY)
	HEADWISE_WRITE_ATTACKS=1 $(BIN)/pytest -m slow tests/integration/test_attacks.py

# Known vulnerabilities of the pinned versions, and dist/sbom.cdx.json, the list of them.
audit: $(AUDIT_READY)
	$(AUDIT)/bin/python .ci/audit.py

# What audits is not part of what is audited, so it has an environment of its own.
$(AUDIT_READY): constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	PIP_CONSTRAINT=constraints.txt $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.10' 'cyclonedx-bom>=7.3'
	touch $(AUDIT_READY)

# Our models against other libraries' with the same weights.
peers: $(PEERS_READY)
	$(PEERS)/bin/pytest tests/peers

# These libraries are large and needed for nothing else, so they have an environment of their own.
$(PEERS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	PIP_CONSTRAINT=constraints.txt $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' 'transformers>=4.50'
	touch $(PEERS_READY)

# Renew constraints.txt: everything as new as pyproject.toml allows, but torch as pinned now.
lock:
	grep '^torch==' constraints.txt > .lock
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=.lock $(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling editables --editable '.[dev]'
	(echo '# Every version of our own set-up, renewed by `make lock`. Users get the ranges of pyproject.toml.'; \
	 $(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+cpu$$//' | sort -f) > constraints.txt
	rm .lock
	touch $(READY)

clean:
	rm -rf $(VENV) $(AUDIT) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
