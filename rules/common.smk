"""
The helpers of the rules: the validated config, fingerprints, paths of results and task ids. Nothing else.

A step's manifest is results/<variant>/<stage>/<step>/[<shard>.]manifest.json. A variant reads a step from `main` when
the step's fingerprint is the same there.
"""

import os
import sys
from functools import cache
from pathlib import Path

# Steps are `python -m scripts.<stage>.<step>` with the interpreter that runs Snakemake (or that of the rule's
# environment), from any working directory.
sys.path.insert(0, workflow.basedir)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [workflow.basedir, os.environ.get("PYTHONPATH")]))
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

from scripts.common import config as configuration
from scripts.common import fingerprint as fingerprints
from scripts.common import lock, steps
from scripts.ingest import sources
from scripts.slurm import hook
from snakemake.settings.types import DeploymentMethod

try:
    validated = configuration.validate(config, source=", ".join(map(str, workflow.configfiles)) or "--config")
except configuration.ConfigError as error:
    raise WorkflowError(str(error)) from None
config.clear()
config.update(validated)

VARIANTS = {"main": config} | {
    name: configuration.validate({**configuration.merged(config, overlay), "variants": {}})
    for name, overlay in config["variants"].items()
}
FINGERPRINTS = {name: {} for name in VARIANTS}


SOURCES = {}  # the source files by variant and shard; a job resolves them at its first call
if workflow.is_main_process:
    try:
        SOURCES.update({name: sources.by_shard(variant) for name, variant in VARIANTS.items()})
    except configuration.ConfigError as error:
        raise WorkflowError(str(error)) from None


def source_names(wildcards):
    """The shard's files as `name=path`."""
    if wildcards.variant not in SOURCES:
        SOURCES[wildcards.variant] = sources.by_shard(VARIANTS[wildcards.variant])
    return SOURCES[wildcards.variant].get(wildcards.shard, [])


def source_files(wildcards):
    """Input function: the shard's files."""
    return [name.split("=", 1)[1] for name in source_names(wildcards)]


def source_content(wildcards):
    """A hash that changes when one of the shard's files is replaced."""
    return sources.content(source_names(wildcards))


wildcard_constraints:
    variant="|".join(VARIANTS),
    shard=r"\d{5}",
    band=r"\d{2}",
    model="|".join(steps.MODELS),


def _fingerprint(variant, step, task=""):
    task = task if steps.STEPS[step].per == "model" else ""
    return fingerprints.fingerprint(step, VARIANTS[variant], FINGERPRINTS[variant], task)


def fingerprint(step):
    """The params entry of a step: a function of the wildcards that gives the step's fingerprint."""

    def found(wildcards):
        return _fingerprint(wildcards.variant, step, getattr(wildcards, "model", ""))

    return found


# A plan asks for the same paths for every task of a step: with 1,000 shards, a million times.
@cache
def _folder(variant, step, model):
    """The folder of a step in a variant: main's, where its fingerprint is the same there."""
    owner = variant if _fingerprint(variant, step, model) != _fingerprint("main", step, model) else "main"
    return f"results/{owner}/{step.replace('.', '/')}"


def _path(variant, step, task):
    folder = _folder(variant, step, task if steps.STEPS[step].per == "model" else "")
    return f"{folder}/{task}.manifest.json" if task else f"{folder}/manifest.json"


def manifest(step):
    """Input function: the step's only manifest, or that of the task with the same shard (band, model)."""

    def found(wildcards):
        task = getattr(wildcards, steps.STEPS[step].per) if steps.STEPS[step].per else ""
        return _path(wildcards.variant, step, task)

    return found


def manifests(step, of=None):
    """Input function: the manifests of all tasks of the step; none where `of` does not need the step."""

    def found(wildcards):
        variant = wildcards.variant
        return all_manifests(variant, step) if of is None or step in steps.needs(of, VARIANTS[variant]) else []

    return found


def group(step):
    """Input function: the manifests of `step` of all shards that the task owns, its first shard's first."""

    def found(wildcards):
        return [
            _path(wildcards.variant, step, shard) for shard in steps.owned(wildcards.shard, VARIANTS[wildcards.variant])
        ]

    return found


def also(wildcards):
    """A params entry: the shards that the task owns beside the one it is called by."""
    return steps.owned(wildcards.shard, VARIANTS[wildcards.variant])[1:]


def ranged(*names):
    """A params entry: the manifests of all shards (bands, models) of the steps as few words, `results/…/{00000..00999}.manifest.json`.

    A command line that spelled out thousands of paths would be longer than the kernel takes; the programs expand it.
    A step that another input already waits for may stand here alone: with 1,000 shards every such edge costs a plan seconds.
    """

    def found(wildcards):
        return [word for step in names for word in _ranged(wildcards.variant, step)]

    return found


@cache
def _ranged(variant, step):
    if step == "crawl.render" and step not in steps.needs("ingest.extract", VARIANTS[variant]):
        return []
    per_shard = steps.STEPS[step].per == "shard"
    tasks = steps.shards(VARIANTS[variant]) if per_shard else steps.tasks(step, VARIANTS[variant])
    paths = [_path(variant, step, task) for task in tasks]
    if steps.STEPS[step].per not in ("shard", "band") or len(paths) == 1:
        return paths
    first, last = (Path(path).name.split(".")[0] for path in (paths[0], paths[-1]))
    return [f"{Path(paths[0]).parent}/{{{first}..{last}}}.manifest.json"]


@cache
def all_manifests(variant, step):
    return [_path(variant, step, task) for task in steps.tasks(step, VARIANTS[variant])]


def every_variant(step):
    """The manifests of a one-task step in every variant."""
    return [_path(variant, step, "") for variant in VARIANTS]


# Under --sdm apptainer: the launcher's options for the image that Snakemake runs the other rules in.
IMAGE = []
if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method:
    if not Path(CONTAINER).exists():
        raise WorkflowError(
            f"--sdm apptainer needs the image {CONTAINER}, and there is none. Build it in {workflow.basedir}, on a machine "
            f"with a network: apptainer build crawl2llm.sif profiles/slurm/crawl2llm.def"
        )
    IMAGE = ["--image", CONTAINER, f"--image-arguments={workflow.deployment_settings.apptainer_args}"]


onstart:
    lock.hold(Path(".snakemake/run.lock"))
    hook.before_submission(workflow)
