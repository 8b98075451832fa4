# make demo   set everything up and run the main job
# make test   set everything up and run all tests
# make soak   the long versions of some tests
# make docs   renew the tables of the pages, build the site (out/site), check its links
# make notebooks   run the notebooks of docs/notebooks and store their outputs
# make figures-quick   every experiment of the papers, at sizes for a CPU: at most ten minutes
# make dist   wheel and sdist, installed into clean environments and tested from outside the checkout
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt

.PHONY: demo setup test soak check bench docs notebooks figures-quick dist clean

demo: $(VENV)/.demo
	$(BIN)/innergrad demo --out out/demo

setup: $(VENV)/.dev

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup tests

soak: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m soak tests

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python benchmarks/tables.py --check
	$(BIN)/python benchmarks/architecture.py --check
	$(BIN)/python benchmarks/claims.py --check
	$(BIN)/python benchmarks/bridges.py --check
	$(BIN)/python benchmarks/check_results.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python benchmarks/site_check.py out/site

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/pieces.py
	$(BIN)/python benchmarks/gradient_error.py
	$(BIN)/python benchmarks/gradient_error.py --outputs 3
	$(BIN)/python benchmarks/gradient_error.py --outputs 8
	$(BIN)/python benchmarks/claims.py
	$(BIN)/python benchmarks/constructions.py
	$(BIN)/python benchmarks/llama.py stock --sizes 4 8 16
	$(BIN)/python benchmarks/bridges.py
	$(BIN)/python benchmarks/decay.py
	$(BIN)/python benchmarks/convergence.py
	$(BIN)/python benchmarks/explain.py
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/variants.py
	$(BIN)/python benchmarks/optimisers.py
	$(BIN)/python benchmarks/diffusion.py
	$(BIN)/python benchmarks/llama_families.py
	$(BIN)/python benchmarks/certificates.py violations --workers 2
	$(BIN)/python benchmarks/certificates.py tightness
	$(BIN)/python benchmarks/certificates.py trajectory
	$(BIN)/python benchmarks/certificates.py attack
	$(BIN)/python benchmarks/kills.py --kills 500
	$(BIN)/python benchmarks/damage.py
	$(BIN)/python benchmarks/invariance.py
	$(BIN)/python benchmarks/executor.py grid
	$(BIN)/python benchmarks/executor.py grid --threads 2
	$(BIN)/python benchmarks/executor.py batch
	$(BIN)/python benchmarks/executor.py growth
	$(BIN)/python benchmarks/executor.py memory
	$(BIN)/python benchmarks/executor.py dense
	$(BIN)/python benchmarks/executor.py steps
	$(BIN)/python benchmarks/executor.py auto
	$(BIN)/python benchmarks/executor.py draw
	$(BIN)/python benchmarks/tables.py

docs: $(VENV)/.dev
	$(BIN)/python benchmarks/tables.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python benchmarks/site_check.py out/site

figures-quick: $(VENV)/.dev
	for name in $$($(BIN)/python -c "from innergrad.cli.names import FIGURES; print(*FIGURES)"); do \
	  $(BIN)/innergrad figures $$name --quick || exit 1; done

notebooks: $(VENV)/.notebooks
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/notebooks.py

dist:
	$(PYTHON) benchmarks/packages.py

clean:
	rm -rf $(VENV) out dist build

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml requirements/constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml requirements/constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	touch $(VENV)/.demo $@

$(VENV)/.notebooks: $(VENV)/.dev
	$(PIP) -e '.[notebooks]'
	touch $@
