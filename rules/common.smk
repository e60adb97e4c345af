"""
What the rules share: the validated config, fingerprints, paths of results, task ids, what is up to date, and the copy of the
code that a run works from.

A step's manifest is results/<variant>/<stage>/<step>/[<shard>.]manifest.json. A variant reads a step from `main` when
the step's fingerprint and what the source files hold are the same there.
"""

import os
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from scripts.common import config as configuration
from scripts.common import (
    contents,
    driver,
    engine,
    fingerprint as fingerprints,
    freshness,
    frozen,
    leftovers,
    lock,
    record,
    steps,
)
from scripts.common.cli import InputError
from scripts.common.manifest import Manifest
from scripts.ingest import sources
from scripts.pretrain import expected
from scripts.pretrain.plan import check_heads
from scripts.slurm import hook
from scripts.watch import handler
from snakemake.settings.types import DeploymentMethod

handler.attach(workflow)

try:
    validated = configuration.validate(config, source=", ".join(map(str, workflow.configfiles)) or "--config")
except configuration.ConfigError as error:
    raise WorkflowError(str(error)) from None
config.clear()
config.update(validated)
COMPLETE = fingerprints.canonical(validated)  # for the report, as one word

VARIANTS = {"main": config} | {
    name: configuration.validate({**configuration.merged(config, overlay), "variants": {}})
    for name, overlay in config["variants"].items()
}
FINGERPRINTS = {name: {} for name in VARIANTS}

# The source files by variant and shard, and what they hold. A job of another process is told what was planned.
if workflow.is_main_process:
    try:
        SOURCES = {name: sources.by_shard(variant) for name, variant in VARIANTS.items()}
        CONTENTS = {
            name: {shard: sources.content(SOURCES[name].get(shard, [])) for shard in steps.shards(variant)}
            for name, variant in VARIANTS.items()
        }
        for name, variant in VARIANTS.items():
            check_heads(variant["pretrain"]["train"]["model"])
            for step in steps.STEPS:
                for model in steps.tasks(step, variant) if steps.STEPS[step].per == "model" else [""]:
                    fingerprints.fingerprint(step, variant, FINGERPRINTS[name], model)
    except (configuration.ConfigError, InputError) as error:
        raise WorkflowError(str(error)) from None
    contents.save()
    fingerprints.save()
else:
    SOURCES, CONTENTS = frozen.sources(Path(workflow.overwrite_configfiles[0]))

# Steps are `python -m scripts.<stage>.<step>` with the interpreter that runs Snakemake (or that of the rule's environment), from any
# working directory. PYTHONSAFEPATH keeps the working directory's own scripts/ out.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [workflow.basedir, os.environ.get("PYTHONPATH")]))
os.environ["PYTHONSAFEPATH"] = "1"
driver.announce()
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Threads that wait give their core away. With OpenMP's default, two threads on two cores that somebody else uses too are
# 20 times slower than one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def source_names(wildcards):
    """The shard's files as `source=root/./name`."""
    return SOURCES[wildcards.variant].get(wildcards.shard, [])


def source_files(wildcards):
    """Input function: the shard's files; Snakemake would take braces in a name for a wildcard."""
    paths = [sources.path_of(name.split("=", 1)[1]) for name in source_names(wildcards)]
    return [path for path in paths if not {"{", "}"} & set(path)]


def source_content(wildcards):
    """A hash that changes when one of the shard's files is replaced."""
    return CONTENTS[wildcards.variant][wildcards.shard]


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
    """The folder of a step in a variant: main's, where its fingerprint and the source files' content are the same there."""
    same = step == "crawl.render" or CONTENTS[variant] == CONTENTS["main"]  # how files are found is in no fingerprint
    owner = "main" if same and _fingerprint(variant, step, model) == _fingerprint("main", step, model) else variant
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


def every_variant(step, file="manifest.json"):
    """A file of a one-task step in every variant."""
    return [f"{_folder(variant, step, '')}/{file}" for variant in VARIANTS]


FRESHNESS = {
    name: freshness.Freshness(lambda step, task, name=name: Path(_path(name, step, task)), CONTENTS[name])
    for name in VARIANTS
}


def tasks_of(job):
    """(variant, step, task ids) of a job; None for one that is no step's."""
    step = job.rule.name.replace("_", ".", 1)
    if step not in steps.STEPS:
        return None
    per = steps.STEPS[step].per
    task = job.wildcards_dict[per] if per else ""
    shared = per == "shard" and step != "ingest.extract"
    variant = job.wildcards_dict["variant"]
    return variant, step, steps.owned(task, VARIANTS[variant]) if shared else [task]


def stale(job):
    """Why a job's results are not up to date, in words; None where they are."""
    if not (found := tasks_of(job)):
        return None
    variant, step, tasks = found
    path = Path(_path(variant, step, tasks[0]))
    if not path.exists():  # Snakemake makes it where something needs it; but a deleted step leaves no record
        return "begun, and not finished" if record.beside(path).exists() else None
    return FRESHNESS[variant].stale(step, tasks, _fingerprint(variant, step, tasks[0]))


def say_what_is_auto():
    """One line on what is `auto`: the values where the tokens are there and up to date, else a bound."""
    if not (keys := expected.keys(config)):
        return
    made, counted = FRESHNESS["main"], ["tokenize.train", "tokenize.encode"]
    tasks = {step: steps.shards(config) if steps.STEPS[step].per else [""] for step in counted}
    there = not any(made.stale(step, tasks[step], _fingerprint("main", step)) for step in counted)
    held = [made.manifest(Path(_path("main", step, task))) for step in counted for task in tasks[step]] if there else []
    names = [path.split("=", 1)[1] for shard in SOURCES["main"].values() for path in shard]
    print(expected.line(config, keys, names, held), file=sys.stderr)


if workflow.is_main_process:
    engine.decide(workflow, stale)
    try:
        say_what_is_auto()
    except InputError as error:  # settings that no corpus can go with
        raise WorkflowError(str(error)) from None

# Only with --sdm apptainer: the locked environment as one file, built as profiles/slurm/crawl2llm.def says, and the launcher's
# options for it; Snakemake runs the other rules in it.
CONTAINER, IMAGE = None, []
if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method:
    CONTAINER = str(frozen.home(Path(workflow.basedir)) / "crawl2llm.sif")
    if not Path(CONTAINER).exists():
        raise WorkflowError(
            f"--sdm apptainer needs the image {CONTAINER}, and there is none. Build it in {Path(CONTAINER).parent}, on a "
            f"machine with a network: apptainer build crawl2llm.sif profiles/slurm/crawl2llm.def"
        )
    IMAGE = ["--image", CONTAINER, f"--image-arguments={workflow.deployment_settings.apptainer_args}"]


def freeze():
    """From here on, jobs and programs work from a copy of the code and the config: an edit meanwhile changes nothing."""
    code = frozen.code(Path(workflow.basedir))
    complete = frozen.config(config, [SOURCES, CONTENTS])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code), os.environ["PYTHONPATH"]])
    engine.start_jobs_from(workflow, code / "Snakefile", complete)
    frozen.forget_others(code, complete)


def forget_leftovers():
    """Remove the results of shards and bands that the config no longer has."""
    found = [
        path
        for variant, tree in VARIANTS.items()
        for step, facts in steps.STEPS.items()
        if facts.per != "model"
        for path in leftovers.leftovers(
            Path("results") / variant, step, steps.tasks(step, tree) if facts.per == "band" else steps.shards(tree)
        )
    ]
    if number := leftovers.remove(found):
        logger.warning(f"removed {number} files of shards and bands that this config no longer has")


def tell_replaced():
    """Say before it happens that results take the place of others."""
    found = [of for job in engine.planned(workflow) if (of := tasks_of(job))]
    number = sum(
        FRESHNESS[variant].other(step, tasks, _fingerprint(variant, step, tasks[0])) for variant, step, tasks in found
    )
    if number:
        logger.warning(
            f"{number:,} of {len(found):,} tasks replace{'s' * (number == 1)} results made with other settings or code; "
            "`crawl2llm plan` says which and why"
        )


def forget_forced():
    """A person who forces a task wants all its shards done, whatever their manifests say."""
    for job in [] if workflow.touch else engine.forced(workflow):
        variant, step, tasks = tasks_of(job) or ("", "", [])
        for task in tasks:
            Manifest.forget(Path(_path(variant, step, task)))


onstart:
    lock.hold(Path(".snakemake/run.lock"))
    tell_replaced()
    hook.before_submission(workflow)
    freeze()
    forget_leftovers()
    forget_forced()
