# make demo: from nothing to an emulated FlashAttention-3 kernel.  make test: everything that must hold.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/run.stamp
	$(BIN)/warpsmith run fa3 --machine h200 --seqlen 512 --head-dim 128 --heads 1

test: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy isa emu programs tools
	$(BIN)/pytest -q -n auto

$(VENV)/run.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,ptxas]"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build
