# Everything runs in one virtual environment, made from the pinned constraints.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

SAMPLE = datasets/corpora/h200_sample
DEMO   = build/demo
MODEL  = $(DEMO)/model/helion-costmodel.ubj
SHIPPED = costmodel/models
TRAINED_ON = datasets/corpora/h200 datasets/corpora/h200_bench $(SAMPLE)
KERNEL = datasets/workloads/attention.py:attention_full

.PHONY: install demo model golden test test-fast test-helion test-exhaustive clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable ".[dev]"
	touch $@

# The whole road on the eight bundled H200 logs: no GPU, no server.
demo: install
	$(BIN)/costmodel import $(SAMPLE) --corpus $(DEMO)/corpus
	$(BIN)/costmodel train $(DEMO)/corpus --output $(DEMO)/model
	$(BIN)/costmodel pick $(KERNEL) --arg 'bf16[32,1024,64]' \
	    --arg 'bf16[32,1024,64]' --arg 'bf16[32,1024,64]' --arg 0.125 \
	    --gpu H200 --model $(MODEL)
	@echo
	@echo "Next:"
	@echo "  $(BIN)/costmodel train $(SAMPLE) --output build/mine     # train on logs: name your own folder"
	@echo "  $(BIN)/costmodel evaluate $(SAMPLE) --model $(MODEL)     # judge a model on logs: name yours"
	@echo "  $(BIN)/costmodel ui                                      # open the MLflow page"
	@echo "  in Python: @helion.kernel(autotuner_fn=costmodel.autotuner())   # plug it in"

# The model that ships, from the bundled measurements alone; the same bytes every time.
# `make golden` afterwards, where its picks were meant to change.
model: install
	$(BIN)/costmodel train $(TRAINED_ON) --output $(SHIPPED) --no-track

golden: install
	$(BIN)/python tests/test_golden.py --regen

test: install
	$(BIN)/python -m pytest

test-fast: install
	$(BIN)/python -m pytest -m "not slow"

# Tests marked `helion` against 1.4.0, 1.5.0 and 1.5.1; torch and Triton stay.
test-helion: install
	$(BIN)/python benchmarks/helion_versions.py

test-exhaustive: install
	$(BIN)/python -m pytest -m "exhaustive"

clean:
	rm -rf $(VENV) build *.egg-info
