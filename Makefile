# Everything runs in one virtual environment, made from the pinned constraints.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

SAMPLE = datasets/corpora/h200_sample
DEMO   = build/demo

.PHONY: demo test test-fast install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: install
	@sh benchmarks/../docs/demo.sh $(BIN) $(SAMPLE) $(DEMO)

test: install
	$(BIN)/python -m pytest

test-fast: install
	$(BIN)/python -m pytest -m "not slow"

clean:
	rm -rf $(VENV) build *.egg-info
