"""What a run does beside Snakemake's plan: what is stale before it, what is prepared after it. Called by rules/common.smk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.chain.freshness import ABOVE, KEEP_RENAMED, RENAMED, replaced_in_words
from crawl2llm.chain.model_registry import EXPORT_STEP, QUANTIZE_STEP
from crawl2llm.chain.project import Project
from crawl2llm.core import code_snapshot
from crawl2llm.core.console import put
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, NewerError
from crawl2llm.core.root import CODE_FOLDER
from crawl2llm.filters.quality import tools
from crawl2llm.stages.compress import gguf_support, quantize_tools
from crawl2llm.stages.pretrain import auto_preview
from crawl2llm.training import compiler, init_checks
from crawl2llm.workflow import snakemake_internals, stale_results, unused


def tasks_of(job: Any, project: Project) -> tuple[str, str, list[str]] | None:
    """(variant, step, task ids) of one of Snakemake's jobs; None for one that is no step's.

    Raises WorkflowError for a shard that has no task of its own.
    """
    from snakemake.exceptions import WorkflowError

    step = steps.step_of(job.rule.name)
    if step not in steps.STEPS:
        return None
    per, variant = steps.STEPS[step].per, job.wildcards_dict["variant"]
    task = job.wildcards_dict[per] if per else ""
    try:
        return variant, step, steps.owned(step, task, project.variants[variant])
    except InputError as error:
        raise WorkflowError(str(error)) from None


def stale(project: Project) -> Callable[[Any], str | None]:
    """A function that says why a job's results are not up to date; see Project.stale.

    It raises WorkflowError for those of a newer version.
    """
    from snakemake.exceptions import WorkflowError

    def of(job: Any) -> str | None:
        found = tasks_of(job, project)
        try:
            return project.stale(*found) if found else None
        except NewerError as error:
            raise WorkflowError(str(error)) from None

    return of


def say_what_is_auto(project: Project) -> None:
    """One line on what is `auto`: the values where the tokens are there and up to date, else a bound.

    Raises InputError for settings that no corpus can go with.
    """
    config = project.variants["main"]
    if not (keys := auto_preview.keys(config)):
        return
    counted = {step: steps.ids(step, config) for step in ("tokenize.train", "tokenize.encode")}
    fresh = project.freshness["main"]
    there = not any(fresh.stale(step, tasks, project.fingerprint("main", step)) for step, tasks in counted.items())
    paths = [Path(project.manifest("main", step, task)) for step, tasks in counted.items() for task in tasks]
    held = [made for path in paths if there and (made := fresh.manifest(path))]
    names = [path.split("=", 1)[1] for shard in project.sources["main"].values() for path in shard]
    put(auto_preview.line(config, keys, names, held), file=sys.stderr)


def check_tokenizers(project: Project) -> None:
    """Raise InputError where a training would start from a model whose tokenizer is not that of the run, which is there and up to date."""
    step = "tokenize.train"
    for variant, config in project.variants.items():
        own, train = Path(project.manifest(variant, step)).with_name("tokenizer.json"), config["pretrain"]["train"]
        if train["start_from"] is None or not own.is_file():
            continue
        if not (there := init_checks.tokenizer_beside(train)).is_file():
            continue
        try:
            init_checks.check_tokenizer(own, there, init_checks.KEY)
        except InputError:
            above = {step}
            for one in reversed(steps.used(config)):
                above |= set(steps.needs(one, config)) if one in above else set()
            # Where anything above is made again, the tokenizer may be another.
            if not any(project.stale(variant, one, steps.ids(one, config)) for one in above):
                raise


def check_tools(project: Project) -> None:
    """Raise InputError where a model is to be exported or quantized by tools that are not there."""
    back = {(move.variant, move.step, move.task) for move in unused.coming_back(project)}
    for variant, config in project.variants.items():
        for step, check in ((EXPORT_STEP, gguf_support.check_tools), (QUANTIZE_STEP, quantize_tools.check_tools)):
            names = steps.tasks(step, config)
            made = [name for name in names if Path(project.manifest(variant, step, name)).exists()]
            fresh = {name for name in made if not project.stale(variant, step, [name])}
            check(config, fresh | {name for name in names if (variant, step, name) in back})
        wanted = [
            (step, steps.ids(step, config)) for step in ("quality.lm", "quality.kenlm") if steps.is_used(step, config)
        ]
        # Results that are there need no program.
        there = [Path(project.manifest(variant, step, name)).exists() for step, names in wanted for name in names]
        if not all(there) or any(project.stale(variant, step, names) for step, names in wanted):
            tools.check(config)


def check_compiler(project: Project, gpus: bool) -> None:
    """Raise InputError where a training is to compile layers on this machine and cannot. gpus: whether the run has any."""
    for variant, config in project.variants.items():
        step, train = "pretrain.train", config["pretrain"]["train"]
        there = Path(project.manifest(variant, step)).exists()
        if train["compile_layers"] and (not there or project.stale(variant, step, steps.ids(step, config))):
            compiler.check("cuda" if gpus and train["device"] != "cpu" else "cpu")


def freeze(workflow: Any, project: Project) -> None:
    """From here on, jobs and programs work from a copy of the code and the config: an edit meanwhile changes nothing."""
    code = code_snapshot.code(Path(workflow.basedir), here=not workflow.deployment_settings.deployment_method)
    complete = code_snapshot.config(project.variants["main"], project.held)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code / CODE_FOLDER), os.environ["PYTHONPATH"]])
    snakemake_internals.start_jobs_from(workflow, code / "Snakefile", complete)
    code_snapshot.forget_others(code, complete)


def nameless(project: Project) -> list[str]:
    """A line for each model of an earlier version, which had no name: nothing reads it now, and its files may be large."""
    places = [
        Path("results") / variant / steps.folder_of(step)
        for variant in project.variants
        for step in steps.MAKERS
        if steps.STEPS[step].per == "model"
    ]
    return [
        f"{place}/manifest.json is of an earlier version, whose model had no name; nothing reads it now. To remove it: "
        f"rm -r {place}/{{manifest.json,losses.jsonl,model}}"
        for place in places
        if (place / "manifest.json").exists()
    ]


def forget_forced(workflow: Any, project: Project) -> None:
    """A person who forces a task wants all its shards made again, also those whose manifests are up to date."""
    for job in [] if workflow.touch else snakemake_internals.forced(workflow):
        variant, step, tasks = tasks_of(job, project) or ("", "", [])
        for task in tasks:
            Manifest.forget(Path(project.manifest(variant, step, task)))


def replaced(workflow: Any, project: Project) -> str:
    """What to say before results take the place of others; "" where none do."""
    found = [of for job in snakemake_internals.planned(workflow) if (of := tasks_of(job, project))]
    late = [of for of in found if project.replaces(*of)]
    reasons = [project.stale(*of) or "" for of in late]
    above = sum(reason.startswith(ABOVE) for reason in reasons)
    words = replaced_in_words(len(late) - above, above, len(found))
    return f"{words}; {KEEP_RENAMED}" if any(RENAMED in reason for reason in reasons) else words


def prepare(workflow: Any, project: Project, tell: Callable[[str], None]) -> None:
    """Before the first job: freeze code and config, set results aside or remove them that the config no longer has, bring others back."""
    freeze(workflow, project)
    if paths := stale_results.of(project.variants):
        tell(f"removed {stale_results.described(paths)}")
        stale_results.remove(paths)
    if moves := list(unused.leaving(project.variants)):
        tell(f"set aside {unused.described(moves)}, {unused.LEAVES}")
        unused.make(moves)
    if moves := unused.coming_back(project):
        tell(f"brought back {unused.described(moves)} {unused.RETURNS}")
        unused.make(moves)
    for line in nameless(project):
        tell(line)
    forget_forced(workflow, project)
