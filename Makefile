# crawl2llm. `make demo` and `make test` need Python 3.11+, make, gcc and the package registries; nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?=
PROFILE ?= profiles/local
export PROMPT ?=
# A broken config is named by file, line and column; Snakemake would only say that it is not valid. What follows a run names its pages.
# DIRECTORY is the folder of the run, of every target that concerns one; without CONFIG its config is the one here then.
DIRECTORY ?=
IN_FOLDER = $(if $(DIRECTORY),--directory "$(DIRECTORY)")
MAKE_FOLDER = $(if $(DIRECTORY),mkdir -p "$(DIRECTORY)" && )
OF_RUN = --profile $(PROFILE) $(if $(CONFIG)$(DIRECTORY),--configfile $(or $(CONFIG),config.yaml)) $(IN_FOLDER)
SNAKEMAKE = $(if $(CONFIG),$(BIN)/python -m crawl2llm.chain.yaml_errors $(CONFIG) && )$(MAKE_FOLDER)\
  CRAWL2LLM_SUMMARY=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m snakemake $(OF_RUN)
PLAN = $(MAKE_FOLDER)PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m crawl2llm plan
IN_RUN = $(if $(DIRECTORY),"$(DIRECTORY)"/$(1),$(1))
RESULTS_HERE = $(call IN_RUN,results/main)

PYTHON_HERE = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python

# Hundreds of starts of Python: without its compiled files each takes longer.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test check plan dag status report serve sample gguf-tools quantize-tools kenlm-tools fp8-tools published-model lint format docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  CONFIG=configs/x.yaml after demo, plan, dag or report takes that run instead of config.yaml,"
	@echo "  PROFILE=profiles/slurm Snakemake's profile instead of profiles/local,"
	@echo "  DIRECTORY=/tmp/run after demo, plan, dag, status, report, serve, sample or clean another folder for the run than this one"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(f"crawl2llm needs Python 3.11 or newer; $(PYTHON) is {sys.version.split()[0]}. Try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# torch by itself first: pip picks the build that suits the machine. What is compiled here (fastText, and what reads pages) must run, and score the same, on
# every node: compiler flags of the caller's environment, such as -march=native, are left out. Where they are empty, setuptools leaves out
# its own -O2 too, and fastText takes four times as long.
$(VENV)/.installed: envs/lock.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the pinned packages into $(VENV) (2.4 GB, with CUDA some GB more): minutes, in which pip prints nothing"
	@PYTHONPATH=scripts $(BIN)/python -m crawl2llm.core.devices
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	CFLAGS=-O2 CXXFLAGS=-O2 CPPFLAGS= $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r envs/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# And what keeps Snakemake from asking SLURM whichever executor a run has.
$(VENV)/.compiled: $(wildcard scripts/crawl2llm/stages/ingest/native/*.p*) $(wildcard scripts/crawl2llm/slurm/crawl2llm_unasked.p*) $(VENV)/.installed
	@cp scripts/crawl2llm/slurm/crawl2llm_unasked.py scripts/crawl2llm/slurm/crawl2llm_unasked.pth "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	CFLAGS=-O2 CXXFLAGS=-O2 CPPFLAGS= $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation ./scripts/crawl2llm/stages/ingest/native
	@touch $@

$(VENV)/.installed-dev: envs/lock-dev.txt $(VENV)/.compiled
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r envs/lock-dev.txt
	@touch $@

install: $(VENV)/.compiled ## create .venv from the pinned lock
	@python=$$(head -n 1 $(BIN)/snakemake | cut -c 3-); test -x "$$python" || \
	  { echo "this folder has moved: its programs start $$python. Run: rm -r $(VENV); make install"; exit 1; }
	@echo "installed in $(VENV). Next: make demo (the whole chain), make plan (what it would run), make help"

demo: $(VENV)/.compiled ## the whole chain on the embedded default: from a crawl to an evaluated model
	$(SNAKEMAKE)
	@$(BIN)/python -m crawl2llm.stages.report.summary --results $(RESULTS_HERE)

test: $(VENV)/.installed-dev ## every test that this machine can run
	@$(PYTHON_HERE) -m tests

check: lint ## before a commit, in 3 minutes: lint, types, unit tests that take seconds, the rerun matrix
	$(PYTHON_HERE) -m pytest --numprocesses auto --dist worksteal -m "not slow" tests/unit tests/workflow/test_matrix.py tests/workflow/test_steps.py

plan: $(VENV)/.compiled ## what would run, why, and about how long it takes
	@$(PLAN) $(OF_RUN)

dag: $(VENV)/.compiled ## the plan as a picture, plan.html and plan.svg (the workflow alone: docs/rulegraph.svg)
	@$(PLAN) --html=$(call IN_RUN,plan.html) --svg=$(call IN_RUN,plan.svg) $(OF_RUN)

status: $(VENV)/.compiled ## what runs where on SLURM, until when, what waits and why, GPU-hours by rule
	@$(BIN)/python -m crawl2llm status $(IN_FOLDER)

report: $(VENV)/.compiled ## only the report, and what it needs; OPEN=1 opens it in a browser
	$(SNAKEMAKE) --forcerun report_render
	@$(BIN)/python -m crawl2llm.stages.report.summary --results $(RESULTS_HERE) $(if $(OPEN),--open)

serve: $(VENV)/.compiled ## talk to the models: a page to chat in and an endpoint as OpenAI's. MODEL=sft PORT=8000, TYPE=q8_0 of a GGUF export
	@$(BIN)/python -m crawl2llm serve $(MODEL) $(if $(TYPE),--type $(TYPE)) --port $(or $(PORT),8000) --results $(or $(RESULTS),$(RESULTS_HERE))

sample: $(VENV)/.compiled ## what a model writes: make sample PROMPT="What does sorted do?" MODEL=sft
	@$(BIN)/python -m crawl2llm sample "$$PROMPT" $(if $(MODEL),--model $(MODEL)) $(if $(TYPE),--type $(TYPE)) --results $(or $(RESULTS),$(RESULTS_HERE))

gguf-tools: $(VENV)/.compiled ## llama.cpp, compiled once, for models as GGUF: into .gguf, or CRAWL2LLM_GGUF
	@$(BIN)/python -m crawl2llm.stages.compress.gguf_tools

# llm-compressor for compress.quantize, in an environment of its own: it wants other versions of transformers. torch by itself first, as above.
# A folder that this did not begin is never removed.
QUANTIZE := $(or $(CRAWL2LLM_QUANTIZE),.quantize)
$(QUANTIZE)/.installed: envs/lock-quantize.txt
	@rmdir "$(QUANTIZE)" 2>/dev/null; test ! -e "$(QUANTIZE)" || test -e "$(QUANTIZE)/.begun" || \
	  { echo "$(QUANTIZE) holds something else than the quantizers' environment: remove it, or name another folder in CRAWL2LLM_QUANTIZE"; exit 1; }
	@echo "installing the quantizers' environment into $(QUANTIZE) (1.5 GB, some minutes)"
	rm -rf "$(QUANTIZE)"
	$(PYTHON) -m venv "$(QUANTIZE)"
	@touch "$(QUANTIZE)/.begun"
	"$(QUANTIZE)/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0
	"$(QUANTIZE)/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r envs/lock-quantize.txt
	@cp envs/lock-quantize.txt "$@"

quantize-tools: $(QUANTIZE)/.installed ## llm-compressor, once, for models that are quantized by gptq or awq: into .quantize, or CRAWL2LLM_QUANTIZE

kenlm-tools: $(VENV)/.compiled ## KenLM, compiled once, for quality.lm and quality.kenlm: into .kenlm, or CRAWL2LLM_KENLM
	@$(BIN)/python -m crawl2llm.filters.quality.kenlm_tools

fp8-tools: $(VENV)/.compiled ## torchao, once, for trainings with precision: fp8: into .fp8, or CRAWL2LLM_FP8
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$(or $(CRAWL2LLM_FP8),.fp8)" -r envs/lock-fp8.txt

published-model: $(VENV)/.compiled ## SmolLM2-135M-Instruct, once, to start from and to test with: into .published, or CRAWL2LLM_PUBLISHED
	@$(BIN)/python -m crawl2llm.training.published.tool

lint: $(VENV)/.installed-dev ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## let the formatters rewrite the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakefmt Snakefile rules

docs: $(VENV)/.compiled ## write what is generated again: schemas/config.schema.json, the tables of keys, steps and plans, and the rulegraph
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m crawl2llm docs

clean: ## remove results, logs, checkpoints and caches (asks first; `crawl2llm clean` removes only what the config does not use)
	@$(if $(DIRECTORY),CDPATH= cd -- "$(DIRECTORY)" || exit 1; )if command -v flock >/dev/null && test -e .snakemake/run.lock && ! flock --nonblock .snakemake/run.lock true; then \
	  echo "a run works here (process $$(cat .snakemake/run.lock)): wait for it, or stop it"; exit 1; fi; \
	  printf 'remove results/, logs/, checkpoints/, .cache/, .snakemake/, plan.html and plan.svg of %s? [y/N] ' "$$PWD"; read answer; \
	  [ "$$answer" = y ] && rm -rf results logs checkpoints .cache .snakemake plan.html plan.svg && echo removed || echo kept
