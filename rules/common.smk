"""
What the rules share: the validated config, and functions of the wildcards that give fingerprints, paths of manifests and task ids.

An input is what a job waits for. The params beside it are the same manifests as few words (`manifest_ranges`): a command line that spelled out
thousands of paths would be longer than the kernel takes, and with 1,000 shards every edge costs a plan seconds. So a step that another
input already waits for stands among the params alone.

What is up to date, and where each manifest lies: scripts/crawl2llm/chain/project.py. What happens when a run starts: workflow/start.py.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path

CODE = Path(workflow.basedir) / "scripts"  # of a frozen copy too
sys.path.insert(0, str(CODE))

from crawl2llm.chain import config as configuration
from crawl2llm.chain import (
    filter_order,
    gpu_slots,
    halving,
    model_registry,
    placement_options,
    sources,
    steps,
    yaml_errors,
)
from crawl2llm.chain.fingerprint import fingerprint_for_program
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS, EDITS_BEFORE, VERDICTS_BEFORE
from crawl2llm.commands.watch import handler
from crawl2llm.core import code_snapshot, console, devices, parent_watch, run_folder, run_lock
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.manifest import NewerError
from crawl2llm.slurm import hook
from crawl2llm.training import gpus
from crawl2llm.workflow import cutoff_planning, snakemake_internals, start
from crawl2llm.workflow.project_checks import check_project
from snakemake.settings.types import DeploymentMethod

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


# A local run: GPUs are its resource `card`, all that are here unless --resources or the profile says fewer. A cluster's nodes have others.
if workflow.is_main_process:
    GPUS = devices.visible_gpus() if workflow.resource_settings.nodes is None else []
    gpu_slots.announce_gpus(GPUS, most=workflow.global_resources.get("card").value)
    if GPUS and "card" not in workflow.global_resources:
        workflow.register_resource("card", len(GPUS))
    if GPUS and not workflow.deployment_settings.deployment_method:
        if line := devices.why_gpus_unseen(devices.cuda_of_torch()):
            print(f"warning: {line}", file=sys.stderr)


wildcard_constraints:
    variant="|".join(VARIANTS),
    shard=r"\d{5}",
    band=r"\d{2}",
    part=r"\d{3}",
    contender=r"[a-z][a-z0-9_-]*-rung\d",
    model="|".join(
        {
            name: 0
            for variant in VARIANTS.values()
            for name in [*model_registry.evaluated_models(variant), *variant["models"]]
        }
    ),


def section(wildcards, step):
    """The section of a step in the config of the variant, with the keys of the model's own where the wildcards name one."""
    return model_registry.section(VARIANTS[wildcards.variant], step, getattr(wildcards, "model", ""))


def placement(step, whose=placement_options.PROGRAM):
    """A params entry: the placement keys of a step as options of its program; what is up to date does not depend on them.

    whose: placement_options.LAUNCHER for those of the launcher, which starts the program.
    """
    return lambda wildcards: placement_options.option_words(step, section(wildcards, step), whose)


def contender_section(wildcards):
    """The section pretrain.train of the variant whose training a task of pretrain.rung is."""
    return VARIANTS[halving.parse_task(wildcards.contender)[0]]["pretrain"]["train"]


def contender_placement(whose=placement_options.PROGRAM):
    """As `placement` of pretrain.train, of the variant whose training a task of pretrain.rung is."""
    return lambda wildcards: placement_options.option_words("pretrain.train", contender_section(wildcards), whose)


def manifests_of_rung_before(wildcards):
    """Input function: the manifests of all contenders at the rung before; none at the first."""
    tasks = halving.tasks_before(wildcards.contender, VARIANTS[wildcards.variant])
    return [PROJECT.manifest_path(wildcards.variant, steps.RUNG, task) for task in tasks]


def training_program(usual, judged):
    """A params entry: the program of a training; where trainings are judged at rungs the other one, with its options."""

    def program_words(wildcards):
        halvings = manifests(steps.HALVE)(wildcards)
        return [judged, "--halving", *halvings, "--contender", wildcards.variant] if halvings else [usual]

    return program_words


def training_threads(step):
    """The threads of a training: those of each of its processes."""

    def thread_count(wildcards):
        settings = contender_section(wildcards) if step == steps.RUNG else section(wildcards, step)
        return settings["processes"] * settings["threads"]

    return thread_count


def gpu_count(step):
    """A resource: the GPUs of this machine that a task takes; 0 where there are none, and on a cluster, whose profile says it."""
    return lambda wildcards: gpu_slots.gpus_needed(step, section(wildcards, step))


def contender_gpu_count(wildcards):
    """As `gpu_count` of pretrain.train, of the variant whose training a task of pretrain.rung is."""
    return gpu_slots.gpus_needed("pretrain.train", contender_section(wildcards))


def setting(step, key):
    """A value of the step's section, as the model that the wildcards name has it."""
    return lambda wildcards: section(wildcards, step)[key]


def profile_gpu(wildcards):
    """The GPU that the profile asks SLURM for to train on; "" where it asks for none."""
    return gpus.name_in_profile(snakemake_internals.profile_resource(workflow, "pretrain_train", "gres"))


def source_access(wildcards):
    """How remote files are reached: options and patience of each source."""
    return sources.access_json(VARIANTS[wildcards.variant])


def missing_files(wildcards):
    """How many remote files of a shard may be missing. It decides no byte of a list, so it is no part of its fingerprint."""
    return VARIANTS[wildcards.variant]["ingest"]["extract"]["max_missing_files"]


def fingerprint(step):
    """The params entry of a step: a function of the wildcards that gives the step's fingerprint."""
    per = steps.STEPS[step].per

    def fingerprint_of_task(wildcards):
        task = getattr(wildcards, per) if per in steps.WITH_OWN_SETTINGS else ""
        return fingerprint_for_program(
            PROJECT.fingerprint(wildcards.variant, step, task), VARIANTS[wildcards.variant]["data"]
        )

    return fingerprint_of_task


def manifest(step):
    """Input function: the step's only manifest, or that of the task with the same shard (band, part, model); none of a step that the run has
    not.
    """

    def manifest_path(wildcards):
        if not steps.is_used(step, VARIANTS[wildcards.variant]):
            return []
        task = getattr(wildcards, steps.STEPS[step].per) if steps.STEPS[step].per else ""
        return PROJECT.manifest_path(wildcards.variant, step, task)

    return manifest_path


def model(wildcards):
    """Input function: the manifest of the model that the wildcards name."""
    step, task = model_registry.making_task(VARIANTS[wildcards.variant], wildcards.model)
    return PROJECT.manifest_path(wildcards.variant, step, task)


def parent(wildcards):
    """Input function: the manifest of the model that the one that the wildcards name is made from."""
    config = VARIANTS[wildcards.variant]
    step, task = model_registry.making_task(config, model_registry.parent(config, wildcards.model))
    return PROJECT.manifest_path(wildcards.variant, step, task)


def lineage(step=None):
    """Input function: the manifests of the models that an export is made from, the nearest first; of a step: those of its tasks for them,
    and for the untrained one.
    """

    def manifest_paths(wildcards):
        config = VARIANTS[wildcards.variant]
        models = model_registry.lineage(config, wildcards.model)
        if step:
            return [PROJECT.manifest_path(wildcards.variant, step, name) for name in models]
        tasks = [model_registry.making_task(config, name) for name in models if name != model_registry.UNTRAINED]
        return [PROJECT.manifest_path(wildcards.variant, *step_and_task) for step_and_task in tasks]

    return manifest_paths


def reward_models(step):
    """Input function: the manifests of the models of a step that score the answers of the model that the wildcards name."""

    def manifest_paths(wildcards):
        names = model_registry.reward_models(VARIANTS[wildcards.variant], wildcards.model)
        return [PROJECT.manifest_path(wildcards.variant, step, name) for name in names]

    return manifest_paths


def answering_model(wildcards):
    """Input function: the manifest of the model whose answers align.pairs judges; none where its `from` is null."""
    config = VARIANTS[wildcards.variant]
    name = config["align"]["pairs"]["from"]
    return PROJECT.manifest_path(wildcards.variant, *model_registry.making_task(config, name)) if name else []


def answering_model_option(wildcards):
    """A params entry: the same as an option of the program."""
    manifest_path = answering_model(wildcards)
    return ["--model", manifest_path] if manifest_path else []


@cache
def _all_manifests(variant, step):
    return [PROJECT.manifest_path(variant, step, task) for task in steps.task_ids(step, VARIANTS[variant])]


def manifests(step):
    """Input function: the manifests of all tasks of the step; none where the run has no such step."""
    return lambda wildcards: (
        _all_manifests(wildcards.variant, step) if steps.is_used(step, VARIANTS[wildcards.variant]) else []
    )


def manifests_if_needed(step, by, ranged=False):
    """Input function: the manifest of the same shard of a step, or all, that another reads where the config asks for it; else none."""

    def manifest_paths(wildcards):
        is_needed = step in steps.needed_steps(by, VARIANTS[wildcards.variant])
        return _manifests_of_steps(wildcards, [step], ranged) if is_needed else []

    return manifest_paths


def manifest_option(name, step):
    """A params entry: the manifest of a one-task step as an option of the program; none where the run has no such step."""

    def option_words(wildcards):
        manifest_paths = manifests(step)(wildcards)
        return [name, *manifest_paths] if manifest_paths else []

    return option_words


def manifests_for_calibration(step, ranged=False):
    """Input function: the manifests of all tasks of the step; none where the model that the wildcards name is quantized without any text."""

    def manifest_paths(wildcards):
        if not model_registry.is_calibrated(VARIANTS[wildcards.variant], wildcards.model):
            return []
        return _manifests_of_step(wildcards.variant, step, ranged)

    return manifest_paths


def calibration_threads(wildcards):
    """The threads of a quantization: one where it reads no text."""
    is_calibrated = model_registry.is_calibrated(VARIANTS[wildcards.variant], wildcards.model)
    return section(wildcards, "compress.quantize")["threads"] if is_calibrated else 1


def _manifests_of_steps(wildcards, names, ranged=False):
    """The manifests of steps: of the same shard where both have shards, else of all (ranged: as few words)."""
    paths = []
    for step in names:
        if steps.STEPS[step].per and hasattr(wildcards, "shard"):
            paths.append(PROJECT.manifest_path(wildcards.variant, step, wildcards.shard))
        else:
            paths += _manifests_of_step(wildcards.variant, step, ranged)
    return paths


def manifests_for_mix(step, ranged=False):
    """Input function: the manifests of all tasks of the step, where pretrain.mix groups documents by what it measures; else none."""

    def manifest_paths(wildcards):
        if step not in steps.needed_steps(steps.MIX, VARIANTS[wildcards.variant]):
            return []
        return _manifests_of_step(wildcards.variant, step, ranged)

    return manifest_paths


def _used_filters(wildcards):
    return filter_order.used_filters(VARIANTS[wildcards.variant])


def verdicts_before(stage, ranged=False):
    """Input function: the newest verdicts before a filter, of the filter before it in the config's `filters` or of ingest.check."""

    def manifest_paths(wildcards):
        verdict_steps = filter_order.verdict_steps(_used_filters(wildcards), stage)
        return _manifests_of_steps(wildcards, verdict_steps[-1:], ranged)

    return manifest_paths


def verdicts(ranged=False):
    """Input function: all verdicts, in the order of the filters."""

    def manifest_paths(wildcards):
        return _manifests_of_steps(wildcards, filter_order.verdict_steps(_used_filters(wildcards)), ranged)

    return manifest_paths


def language_scores(stage, ranged=False):
    """Input function: the manifests of language.score where that filter comes before this one; else none."""

    def manifest_paths(wildcards):
        is_before = "language" in filter_order.filters_before(_used_filters(wildcards), stage)
        return _manifests_of_steps(wildcards, ["language.score"] if is_before else [], ranged)

    return manifest_paths


def edits(stage=None, ranged=False):
    """Input function: the manifests of the steps before a filter that edit texts; without a filter: of all of them."""

    def manifest_paths(wildcards):
        return _manifests_of_steps(wildcards, filter_order.edit_steps(_used_filters(wildcards), stage), ranged)

    return manifest_paths


def inputs_of_filter(step):
    """The input functions of a step of an ordinary filter, by the option of its program."""
    stage = steps.stage_of(step)
    function_of = {
        VERDICTS_BEFORE: ("verdicts", verdicts_before(stage)),
        EDITS_BEFORE: ("edits", edits(stage)),
        DOCUMENTS: ("documents", manifest(DOCUMENTS)),
        filter_order.LANGUAGES: ("languages", manifest(filter_order.LANGUAGES)),
        f"{stage}.score": ("signals", manifest(f"{stage}.score")),
    }
    return dict(function_of[need] for need in steps.STEPS[step].needs)


def input_options(wildcards, input):
    """A params entry: the inputs of a step of an ordinary filter as options of its program."""
    return [word for name in input.keys() for word in (f"--{name}", *_as_list(input[name]))]


def _as_list(paths):
    return [paths] if isinstance(paths, str) else paths


def manifests_of_main(step, ranged=False):
    """Input function: the manifests of all tasks of the step in main, whichever variant reads them."""
    return lambda wildcards: _manifests_of_step("main", step, ranged)


def edits_of_main(ranged=False):
    """Input function: the manifests of the steps of main that edit texts."""

    def manifest_paths(wildcards):
        edit_steps = filter_order.edit_steps(filter_order.used_filters(VARIANTS["main"]))
        return [path for step in edit_steps for path in _manifests_of_step("main", step, ranged)]

    return manifest_paths


def further_results(step):
    """A params entry: the shards (bands, parts) that a task owns beside the one it is called by."""

    def result_ids(wildcards):
        task = getattr(wildcards, steps.STEPS[step].per)
        return steps.result_ids_of_task(step, task, VARIANTS[wildcards.variant])[1:]

    return result_ids


def shards_at_once(step):
    """The threads of a task that owns several shards: so many are done at the same time, each by a process."""

    return lambda wildcards: min(steps.AT_ONCE, 1 + len(further_results(step)(wildcards)))


def seed_corpora(step):
    """Input function: the corpora of this run that the seeds of a step of synthesize are taken from."""
    return lambda wildcards: PROJECT.seed_manifests(wildcards.variant, step)


def manifests_for_report(wildcards):
    """Input function: the manifests of every step of the run that its report shows."""
    return [path for step in _steps_in_report(wildcards) for path in _all_manifests(wildcards.variant, step)]


def manifests_read_by(step, ranged=False):
    """Input function: the manifests of every step that a one-task step reads by the table of steps (ranged: as few words)."""

    def manifest_paths(wildcards):
        return _manifests_of_steps(wildcards, steps.needed_steps(step, VARIANTS[wildcards.variant]), ranged)

    return manifest_paths


def manifest_ranges(*names):
    """A params entry: the manifests of all shards (bands, parts, models) of the steps (none: of all that the report shows) as few words.

    Of a step that the run does not have there are none.

    Such a word is `results/…/{00000..00999}.manifest.json`; the programs expand it.
    """

    def range_words(wildcards):
        used = steps.used_steps(VARIANTS[wildcards.variant])
        read_steps = [step for step in used if step in names] if names else _steps_in_report(wildcards)
        return [word for step in read_steps for word in _manifest_ranges(wildcards.variant, step)]

    return range_words


def _steps_in_report(wildcards):
    return [step for step in steps.used_steps(VARIANTS[wildcards.variant]) if step not in steps.NOT_IN_REPORT]


def _manifests_of_step(variant, step, ranged):
    """The manifests of all tasks of the step (ranged: as few words)."""
    return _manifest_ranges(variant, step) if ranged else _all_manifests(variant, step)


@cache
def _manifest_ranges(variant, step):
    paths = [PROJECT.manifest_path(variant, step, task) for task in steps.result_ids(step, VARIANTS[variant])]
    if steps.STEPS[step].per not in steps.NUMBERED or len(paths) == 1:
        return paths
    first, last = (Path(path).name.split(".")[0] for path in (paths[0], paths[-1]))
    return [f"{Path(paths[0]).parent}/{{{first}..{last}}}.manifest.json"]


def every_variant(step, file="manifest.json"):
    """A file of a one-task step in every variant."""
    return [f"{PROJECT.step_folder(variant, step)}/{file}" for variant in VARIANTS]


def manifests_of_all_variants(*names):
    """Input function: the manifests of all tasks of steps in every variant that has them."""

    def manifest_paths(wildcards):
        used = [
            (variant, step) for step in names for variant, config in VARIANTS.items() if steps.is_used(step, config)
        ]
        return list(dict.fromkeys(path for variant, step in used for path in _all_manifests(variant, step)))

    return manifest_paths


def comparison_manifests(step):
    """The manifests of a step that compares variants, of all of them; none where the run has none."""
    return [
        path for name, config in VARIANTS.items() if steps.is_used(step, config) for path in _all_manifests(name, step)
    ]


if workflow.is_main_process:
    snakemake_internals.decide_reruns_by(workflow, start.stale_job_check(PROJECT))
    try:
        start.check_tokenizers(PROJECT)
        start.check_tools(PROJECT)
        if workflow.resource_settings.nodes is None and not workflow.deployment_settings.deployment_method:
            start.check_compiler(PROJECT, bool(GPUS))
        start.say_what_is_auto(PROJECT)
    # Settings that no corpus can go with, a start from another vocabulary, tools that are not there, results of a newer version.
    except (InputError, NewerError) as error:
        raise WorkflowError(console.safe_message(str(error))) from None

# Where this environment runs the jobs too: the compiled part fits the code, or no job that needs it would work.
if workflow.is_main_process and not workflow.deployment_settings.deployment_method:
    try:
        import crawl2llm.stages.ingest.compiled  # noqa: F401
    except ImportError as error:
        raise WorkflowError(console.safe_message(str(error))) from None

# Only with --sdm apptainer: the locked environment as one file, built as profiles/slurm/crawl2llm.def says, and the launcher's
# options for it; Snakemake runs the other rules in it.
CONTAINER, IMAGE = None, []
if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method:
    CONTAINER = str(code_snapshot.project_folder(Path(workflow.basedir)) / "crawl2llm.sif")
    if not Path(CONTAINER).exists():
        raise WorkflowError(
            f"--sdm apptainer needs the image {CONTAINER}, and there is none. Build it in {Path(CONTAINER).parent}, on a "
            f"machine with a network: apptainer build crawl2llm.sif profiles/slurm/crawl2llm.def"
        )
    IMAGE = ["--image", CONTAINER, f"--image-arguments={workflow.deployment_settings.apptainer_args}"]


onstart:
    try:
        run_lock.take_lock(run_lock.RUN)
        if notice := start.replacement_notice(workflow, PROJECT):
            logger.warning(notice)
        hook.before_submission(workflow)
        start.prepare_run(workflow, PROJECT, logger.warning)
        if not workflow.touch:
            snakemake_internals.start_only_if(workflow, cutoff_planning.CutoffPlanner(PROJECT).has_nothing_to_do)
    except run_lock.RunInProgressError as error:
        raise WorkflowError(str(error)) from None
    except OSError as error:
        raise WorkflowError(run_folder.error_line(error, Path.cwd())) from None
