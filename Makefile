# Every target installs what it needs, so `make test` works on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AUDIT := .audit
AUDIT_READY := $(AUDIT)/.ready
PEERS := .peers
PEERS_READY := $(PEERS)/.ready
EVALB := $(PEERS)/allennlp/allennlp/tools/EVALB/evalb

.PHONY: setup setup-browser demo check test slow fuzz bench docs security-tests audit peers lock clean

setup: $(READY)

# Versions are pinned for development only; users get the ranges in pyproject.toml.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

# Browser tests use Debian's Chromium and are skipped without it.
setup-browser:
	command -v chromium > /dev/null || (apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends chromium)

demo: $(READY)
	$(BIN)/headwise demo

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --quiet tests/unit/test_import_order.py

# Uses all cores; each process has one torch thread (tests/conftest.py). A test that hangs fails.
test: $(READY)
	$(BIN)/pytest --numprocesses auto --dist worksteal --timeout 300

slow: $(READY)
	$(BIN)/pytest -m slow

# Random input for a minute per parser; set FUZZ_MINUTES=10 for longer.
fuzz: $(READY)
	$(BIN)/pytest -m slow tests/fuzz

bench: $(READY)
	$(BIN)/python benchmarks/step.py

# Generate docs/cli.md from the commands.
docs: $(READY)
	$(BIN)/python docs/cli.py

# Attack a server, measure the effect on another client, write docs/security-tests.md. Takes minutes.
security-tests: $(READY)
	HEADWISE_WRITE_ATTACKS=1 $(BIN)/pytest -m slow tests/integration/test_attacks.py

# Check the pinned versions for known vulnerabilities and write the SBOM, dist/sbom.cdx.json.
audit: $(AUDIT_READY)
	$(AUDIT)/bin/python .ci/audit.py

# A separate environment, so that the audit tools are not audited with the project.
$(AUDIT_READY): constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	PIP_CONSTRAINT=constraints.txt $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.10' 'cyclonedx-bom>=7.3'
	touch $(AUDIT_READY)

# Our models against other libraries' with the same weights, and our scores against other programs'.
peers: $(PEERS_READY) $(EVALB)
	$(PEERS)/bin/pytest tests/peers

# These libraries are large and needed for nothing else, so they have an environment of their own.
$(PEERS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	PIP_CONSTRAINT=constraints.txt $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' 'openai>=2.0' 'transformers>=4.50'
	touch $(PEERS_READY)

# EVALB's C source is in a wheel that is unpacked, not installed.
$(EVALB): tests/peers/evalb.txt | $(PEERS_READY)
	$(PEERS)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --requirement tests/peers/evalb.txt --dest $(PEERS)
	$(PEERS)/bin/python -m zipfile --extract $(PEERS)/allennlp-0.9.0-py3-none-any.whl $(PEERS)/allennlp
	cc -std=gnu99 -w -O2 -o $(EVALB) $(EVALB).c

# Update constraints.txt to the newest versions that pyproject.toml allows, except torch.
lock:
	grep '^torch==' constraints.txt > .lock
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=.lock $(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling editables --editable '.[dev]'
	(echo '# Versions for development and the container, updated by `make lock`. Users get the ranges in pyproject.toml.'; \
	 $(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+cpu$$//' | sort -f) > constraints.txt
	rm .lock
	touch $(READY)

clean:
	rm -rf $(VENV) $(AUDIT) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
