"""
What the rules share: the validated config, and what they are written with.

A rule is called after its step, and says what the step reads. Each named input, and each named param, is an option of the program; what
else follows from the step is filled in: log, benchmark file, environment, threads, GPUs, fingerprint (`complete_rules`).

Inputs: scripts/crawl2llm/workflow/rule_inputs.py. What follows from a step: workflow/rule_parts.py. What is up to date: chain/project.py.
"""

import json
import os
import sys
from pathlib import Path

CODE = Path(workflow.basedir) / "scripts"  # of a frozen copy too
sys.path.insert(0, str(CODE))

from crawl2llm.chain import config as configuration
from crawl2llm.chain import filter_order, model_registry, yaml_errors
from crawl2llm.chain.placement_options import LAUNCHER
from crawl2llm.chain.project import Project
from crawl2llm.commands.watch import handler
from crawl2llm.core import code_snapshot, console, parent_watch, run_folder, run_lock
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import NewerError
from crawl2llm.slurm import hook
from crawl2llm.training import gpus
from crawl2llm.workflow import cutoff_planning, snakemake_internals, start
from crawl2llm.workflow.project_checks import check_project
from crawl2llm.workflow.rule_inputs import RuleInputs
from crawl2llm.workflow.rule_parts import PROGRAM, TRAINING, RuleParts, result

handler.attach(workflow)
snakemake_internals.ignore_clocks()

try:
    if workflow.is_main_process:
        run_folder.check_writable(Path.cwd())
    # The embedded default is a complete run, the demo. A run named by --configfile takes its place: it is not laid over it.
    # Snakemake would not say where a file is broken, and drops the first of two equal keys without a word.
    for path in (workflow.overwrite_configfiles or ["config.yaml"]) if workflow.is_main_process else []:
        yaml_errors.read_config(Path(path))
    if not workflow.overwrite_configfiles:
        workflow.configfile("config.yaml")
    validated = configuration.validate(config, source=", ".join(map(str, workflow.configfiles)) or "--config")
    for line in configuration.unused_filter_lines(config, validated) if workflow.is_main_process else []:
        print(f"warning: {line}", file=sys.stderr)
    config.clear()
    config.update(validated)
    COMPLETE = json.dumps(validated)  # for the report, as one word; the models keep their order
    if workflow.is_main_process:
        PROJECT = Project(config)
        check_project(PROJECT)
        SOURCES = code_snapshot.sources_path(code_snapshot.config_path(PROJECT.variants["main"], PROJECT.held))
    else:  # a job is told what was planned
        SOURCES = code_snapshot.sources_path(Path(workflow.overwrite_configfiles[0]))
        PROJECT = Project(config, code_snapshot.read_sources(SOURCES))
except (ConfigError, InputError, run_folder.RunFolderError) as error:
    raise WorkflowError(console.safe_message(str(error))) from None
VARIANTS = PROJECT.variants

# Steps are `python -m crawl2llm.stages.<stage>.<step>`, those of filters `crawl2llm.filters.<filter>.<step>`, with the interpreter that
# runs Snakemake (or that of the rule's environment), from any working directory. PYTHONSAFEPATH keeps its own files out.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
os.environ["PYTHONSAFEPATH"] = "1"
os.environ["CRAWL2LLM"] = str(workflow.basedir)  # envs/data.yaml installs a package of the project
parent_watch.announce_driver()
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Threads that wait give their core away. With OpenMP's default, two threads on two cores that somebody else uses too are
# 20 times slower than one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
GPUS = start.announce_gpus(workflow) if workflow.is_main_process else []


wildcard_constraints:
    variant="|".join(VARIANTS),
    shard=r"\d{5}",
    band=r"\d{2}",
    part=r"\d{3}",
    contender=r"[a-z][a-z0-9_-]*-rung\d",
    model="|".join(model_registry.names_in_variants(VARIANTS)),


if workflow.is_main_process:
    snakemake_internals.decide_reruns_by(workflow, start.stale_job_check(PROJECT))
    try:
        start.check_environment(workflow, PROJECT, GPUS)
    # Settings that no corpus can go with, a start from another vocabulary, tools that are not there, results of a newer version.
    except (InputError, NewerError, ImportError) as error:
        raise WorkflowError(console.safe_message(str(error))) from None

# Only with --sdm apptainer: the locked environment as one file (profiles/slurm/crawl2llm.def), for the launcher too.
CONTAINER = start.container_image(workflow)
IMAGE = ["--image", CONTAINER, f"--image-arguments={workflow.deployment_settings.apptainer_args}"] if CONTAINER else []

inputs = RuleInputs(PROJECT)
parts = RuleParts(PROJECT, inputs, IMAGE)
snakemake_internals.complete_rules(workflow, parts)
manifest, manifests, manifests_if_needed = inputs.manifest, inputs.manifests, inputs.manifests_if_needed
manifests_of_main, manifests_of_all_variants = inputs.manifests_of_main, inputs.manifests_of_all_variants
verdicts, verdicts_before = inputs.verdicts, inputs.verdicts_before
edits, edits_of_main, scored_texts, tokens = inputs.edits, inputs.edits_of_main, inputs.scored_texts, inputs.tokens
model, parent, other_parents, lineage = inputs.model, inputs.parent, inputs.other_parents, inputs.lineage
answering_model, reward_models, written_teacher = inputs.answering_model, inputs.reward_models, inputs.written_teacher
seed_corpora, join_inputs, rung_before = inputs.seed_corpora, inputs.join_inputs, inputs.rung_before
manifests_read_by, manifests_for_report = inputs.manifests_read_by, inputs.manifests_for_report
placement, setting, calibration_threads = parts.placement, parts.setting, parts.calibration_threads
source_access, max_missing_files = parts.source_access, parts.max_missing_files


def profile_gpu(wildcards):
    """The GPU that the profile asks SLURM for to train on; "" where it asks for none."""
    return gpus.name_in_profile(snakemake_internals.profile_resource(workflow, "pretrain_train", "gres"))


def complete_config(wildcards):
    """The whole config, as one word: a function, since Snakemake would look for wildcards in its braces."""
    return COMPLETE


def sources_of_variant(wildcards):
    """The file that names the sources of every shard, and the variant: thousands of names are longer than a command line takes."""
    return [str(SOURCES), wildcards.variant]


def every_variant(step, file="manifest.json"):
    """A file of a one-task step in every variant."""
    return [f"{PROJECT.step_folder(variant, step)}/{file}" for variant in VARIANTS]


def figure(step, file, caption, shows):
    """An output beside the step's manifest that `snakemake --report` shows, too."""
    path = f"{Path(result(step)).parent}/{file}"
    return report(path, caption=f"report/{caption}.rst", category="{variant}", labels={"shows": shows})


onstart:
    try:
        run_lock.take_lock(run_lock.RUN)
        if notice := start.replacement_notice(workflow, PROJECT):
            logger.warning(notice)
        start.check_planned_training(workflow, PROJECT, GPUS)
        hook.before_submission(workflow)
        start.prepare_run(workflow, PROJECT, logger.warning)
        if not workflow.touch:
            snakemake_internals.start_only_if(workflow, cutoff_planning.CutoffPlanner(PROJECT).has_nothing_to_do)
    except run_lock.RunInProgressError as error:
        raise WorkflowError(str(error)) from None
    except OSError as error:
        raise WorkflowError(run_folder.error_line(error, Path.cwd())) from None
