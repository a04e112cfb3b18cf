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

.PHONY: install demo model golden test test-fast test-helion test-exhaustive test-acf clean

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

# Control files for ptxas: the rest of their tests, on real assemblers (45 MB each).
# They stay on this machine; no control file is fetched, or needed.
PTXAS_DIR = build/ptxas
PTXAS = 13.3.73 13.5.37

$(PTXAS_DIR)/%/.fetched: | install
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
	    --dest $(PTXAS_DIR)/wheels nvidia-cuda-nvcc==$*
	mkdir -p $(@D)
	$(BIN)/python -m zipfile -e \
	    $(PTXAS_DIR)/wheels/nvidia_cuda_nvcc-$*-*.whl $(@D)
	chmod +x $(@D)/nvidia/cu13/bin/ptxas
	touch $@

test-acf: install $(PTXAS:%=$(PTXAS_DIR)/%/.fetched)
	COSTMODEL_TEST_PTXAS_DIR=$(CURDIR)/$(PTXAS_DIR) \
	    $(BIN)/python -m pytest tests/test_acf_ptxas.py

clean:
	rm -rf $(VENV) build *.egg-info
