# `make demo` and `make test` work on a fresh machine. The other targets are for people who change PIVOT.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Keep bytecode: hundreds of processes import the same modules, and compiling those of PyTorch takes 8 s.
unexport PYTHONDONTWRITEBYTECODE
# The repository root is the package, but the checkout may have a name that is invalid for packages (pivot-vlm).
ANY_FOLDER := -c pyproject.toml --rootdir=tests

.PHONY: help install dev demo serve lock lint style types kernels browser main-part maniskill-part training-part test bench docs clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "PIVOT needs Python 3.11 or newer; point to one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet -e .
	@# Type checkers do not see through the hook of an editable install, but they follow a path file.
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/pivot
	@$(BIN)/python -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "pivot-types.pth").write_text("$(abspath $(VENV))/src\n")'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet $(if $(LOCKED),-c .github/requirements-dev.lock) -e '.[dev]'
	@# Tests use AI2-THOR's event classes. Without dependencies, because its opencv-python would replace the headless one.
	@# And MiniGrid, whose pygame-ce would replace the pygame with which gymnasium's pictures are compared.
	$(BIN)/pip install --quiet --no-deps 'ai2thor==5.0.0' 'minigrid>=3.0'
	@# The type checker resolves the tests' imports of the package through this link.
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/pivot
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed  ## install PIVOT into .venv

dev: $(VENV)/.dev  ## install PIVOT and the development tools

SIZE ?= small
LEVELS_small := --tasks 64
LEVELS_paper :=
demo: $(VENV)/.installed  ## build datasets of both puzzles, 64 levels each, and show them; SIZE=paper takes the paper's sizes
	@case $(SIZE) in small|paper) ;; *) echo "SIZE: found '$(SIZE)', expected small or paper"; exit 2;; esac
	$(BIN)/pivot build sokoban frozenlake --out $(DEMO) $(LEVELS_$(SIZE))
	$(BIN)/pivot stats $(DEMO)
	$(BIN)/pivot peek $(DEMO) --png $(DEMO)-failure.png
	@echo "made at the size '$(SIZE)'; small is 64 levels of each puzzle, paper (make demo SIZE=paper) 180 and 216"

serve: $(VENV)/.installed  ## run a Prefect server and a worker with the schedules of prefect.yaml until Ctrl-C
	@exec $(BIN)/pivot deploy --serve

lock: $(VENV)/.dev  ## write the installed versions to .github/requirements-dev.lock; make dev LOCKED=1 installs them
	(head -n 1 .github/requirements-dev.lock; $(BIN)/pip freeze --exclude-editable) > $(VENV)/lock && mv $(VENV)/lock .github/requirements-dev.lock

lint: style types  ## run ruff and the type checker over sources and tests

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/basedpyright

kernels: $(VENV)/.dev
	@$(BIN)/python -m pivot.tests.compile_kernels

# The viewer's tests need a browser. If it cannot be installed, they are skipped and the reason is printed.
browser:
	@sh tests/install_chromium.sh || echo "skipped: the tests of the viewer in a browser"
	@sh tests/install_axe.sh || echo "the tests of the viewer use an older axe-core"

# The type checker runs at the same time as the tests, which leave a core idle now and then. A part that fails leaves its
# name, so that all parts run and the end names the failed ones.
PARTS := style types main-part training-part maniskill-part
FAILED := $(VENV)/failed
.PHONY: $(PARTS:%=try-%)
ifdef WHAT
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory what-$(WHAT)
else
test: $(VENV)/.dev browser  ## run lint and all tests that finish within minutes; WHAT=list shows what WHAT=... runs instead
	@rm -f $(FAILED)
	@$(MAKE) --no-print-directory --jobs=2 $(PARTS:%=try-%)
	@if [ -e $(FAILED) ]; then echo "make test: failed:" $$(cat $(FAILED)); exit 1; else echo "make test: all parts passed"; fi
endif

$(PARTS:%=try-%): try-%:
	@$(MAKE) --no-print-directory $* || echo $* >> $(FAILED)
try-main-part: try-style
try-training-part: try-main-part
try-maniskill-part: try-training-part

MINUTES := not long and not plants and not hostile and not docs and not operations and not deploy and not train and not serving and not engines and not maniskill

# More workers than cores, because many tests wait for the processes that they start.
WORKERS := 3

# The kernels come first, or else each test worker compiles them.
main-part training-part maniskill-part: export OMP_NUM_THREADS = 1
main-part: kernels
	$(BIN)/pytest $(ANY_FOLDER) tests -m "$(MINUTES)" -n $(WORKERS) --dist loadgroup --durations=30 --durations-min=3

# ManiSkill gets a separate environment that shares the other packages of .venv, because its OpenCV would replace the
# headless one. It renders with a software Vulkan driver in .venv/lavapipe, not in the system.
MANISKILL := $(VENV)/maniskill
$(MANISKILL)/.torch: $(VENV)/.dev
	$(PYTHON) -m venv $(MANISKILL)
	echo "import site; site.addsitedir('$(CURDIR)/$$($(BIN)/python -c 'import os, site; print(os.path.relpath(site.getsitepackages()[0]))')')" \
		> $$($(MANISKILL)/bin/python -c 'import site; print(site.getsitepackages()[0])')/shared.pth
	$(MANISKILL)/bin/pip install --quiet --no-compile $(TORCH) -e '.[train,transformers]'
	@touch $@

$(MANISKILL)/.installed: $(MANISKILL)/.torch tests/install_lavapipe.sh
	$(MANISKILL)/bin/pip install --quiet --no-compile $(TORCH) 'mani_skill>=3.0.1'
	sh tests/install_lavapipe.sh $(CURDIR)/$(VENV)/lavapipe
	@touch $@

MANISKILL_TEST = . $(CURDIR)/$(VENV)/lavapipe/environment && $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m maniskill tests/environments/primitiveskill/test_maniskill.py -n 2

# The small part for `make test`. If ManiSkill cannot be installed, it is skipped and the reason is printed.
maniskill-part: $(VENV)/.dev
	@if $(MAKE) --no-print-directory $(MANISKILL)/.installed > $(VENV)/maniskill.log 2>&1; \
	then $(MANISKILL_TEST); \
	else echo "skipped: the tests with ManiSkill, which cannot be installed here:"; tail -n 2 $(VENV)/maniskill.log; fi

# The tests that need PyTorch, in the same environment. If PyTorch cannot be installed, they are skipped and the reason
# is printed.
TRAINED := tests/models tests/training tests/policy_rl tests/evaluation tests/interop
training-part: $(VENV)/.dev
	@if $(MAKE) --no-print-directory $(MANISKILL)/.torch > $(VENV)/training.log 2>&1; \
	then $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m "train and not long" $(TRAINED) -n $(WORKERS) --dist loadgroup; \
	else echo "skipped: the tests of training, for which PyTorch cannot be installed here:"; tail -n 2 $(VENV)/training.log; fi

# The tested version; set TORCH= for a different one.
TORCH ?= torch==2.13.0

# Compare two runs with: .venv/bin/python -m pivot.benchmarks compare A.json B.json
BENCH := runs/bench-$(shell date -u +%Y%m%dT%H%M%S).json

bench: $(VENV)/.dev  ## measure every performance claim and its baseline; rows are kept in runs/bench-*.json
	@failed=0; $(BIN)/python -m pivot.benchmarks --out $(BENCH) || failed=1; \
	if $(MAKE) --no-print-directory $(MANISKILL)/.torch > $(VENV)/training.log 2>&1; \
	then $(MANISKILL)/bin/python -m pivot.benchmarks --out $(BENCH) bench_training bench_stage2 || failed=1; \
	else echo "skipped: the benchmark of training, for which PyTorch cannot be installed here"; fi; \
	exit $$failed

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## rewrite the generated pages, then build the site into build/site and check its links
	$(BIN)/python docs/assets/reference_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove the environment and all build results
	rm -rf $(VENV) build dist *.egg-info runs/demo runs/demo-failure.png

include tests/named.mk
