# Two commands do everything: `make demo` and `make test`. Both set up .venv first, with uv where it is, else with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types docs validation bench oracle clean

help:
	@echo "make demo         set up and run the main job on a shipped example"
	@echo "make test         set up and run the tests"
	@echo "make check        lint, types, tests: what CI runs"
	@echo "make validation   show how the error table moved; UPDATE=--update writes it"
	@echo "make oracle       count memory of real model classes with PyTorch (downloads torch, about 3 minutes)"
	@echo "make bench        start-up and answer times"

# Pins keep a fresh machine on versions that were tried. --no-deps for the project: its dependencies are pinned above it.
$(READY): pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -r constraints.txt && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --editable . ; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -r constraints.txt && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . ; \
	fi
	@touch $(READY)

demo: $(READY)
	@$(BIN)/outgrow decide examples/chat-8b.yaml --on h100-sxm

test: $(READY)
	$(BIN)/python -m pytest -q -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_glossary.py

check: lint types test

validation: $(READY)
	$(BIN)/python scripts/validation.py $(UPDATE)

bench: $(READY)
	$(BIN)/python benchmarks/run.py

oracle: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.24.0 peft
	$(BIN)/python scripts/oracle/fake_step.py --out validation/data/fake_tensor_memory.csv
	$(BIN)/python -m pytest -q -m oracle

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
