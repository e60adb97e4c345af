"""What a run does beside Snakemake's plan: what is stale before it, what is prepared after it. Called by rules/common.smk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from crawl2llm.chain import gpu_slots, model_registry, plugins, steps
from crawl2llm.chain.freshness import ABOVE_PREFIX, KEEP_RENAMED, MODULES_RENAMED, replacement_text
from crawl2llm.chain.model_registry import EXPORT_STEP, QUANTIZE_STEP
from crawl2llm.chain.project import Project
from crawl2llm.core import code_snapshot, devices
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, NewerError
from crawl2llm.core.root import CODE_FOLDER
from crawl2llm.filters.quality import tools
from crawl2llm.stages.compress import gguf_support, quantize_tools
from crawl2llm.stages.pretrain import auto_preview
from crawl2llm.stages.tokenize.ready_checks import with_known_vocabulary
from crawl2llm.training import compiler, float8, gpus, init_checks
from crawl2llm.training.checks import FP8
from crawl2llm.training.float8 import check_precision
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
        return variant, step, steps.result_ids_of_task(step, task, project.variants[variant])
    except InputError as error:
        raise WorkflowError(str(error)) from None


def stale_job_check(project: Project) -> Callable[[Any], str | None]:
    """A function that says why a job's results are not up to date; see Project.why_stale.

    It raises WorkflowError for those of a newer version.
    """
    from snakemake.exceptions import WorkflowError

    def why_job_is_stale(job: Any) -> str | None:
        job_tasks = tasks_of(job, project)
        try:
            return project.why_stale(*job_tasks) if job_tasks else None
        except NewerError as error:
            raise WorkflowError(str(error)) from None

    return why_job_is_stale


def announce_gpus(workflow: Any) -> list[str]:
    """The GPUs of a local run, which its jobs are told: all that are here unless --resources or the profile says fewer.

    They are its resource `card`. None on a cluster, whose nodes have others.
    """
    names = devices.visible_gpus() if workflow.resource_settings.nodes is None else []
    gpu_slots.announce_gpus(names, most=workflow.global_resources.get("card").value)
    if names and "card" not in workflow.global_resources:
        workflow.register_resource("card", len(names))
    runs_jobs_here = not workflow.deployment_settings.deployment_method
    if names and runs_jobs_here and (line := devices.why_gpus_unseen(devices.cuda_of_torch())):
        print_line(f"warning: {line}", file=sys.stderr)
    return names


def container_image(workflow: Any) -> str | None:
    """The image that jobs run in with `--sdm apptainer`, beside the project; None without. Raises WorkflowError if there is none."""
    from snakemake.exceptions import WorkflowError
    from snakemake.settings.types import DeploymentMethod

    if DeploymentMethod.APPTAINER not in workflow.deployment_settings.deployment_method:
        return None
    image = code_snapshot.project_folder(Path(workflow.basedir)) / "crawl2llm.sif"
    if not image.exists():
        raise WorkflowError(
            f"--sdm apptainer needs the image {image}, and there is none. Build it in {image.parent}, on a "
            f"machine with a network: apptainer build crawl2llm.sif profiles/slurm/crawl2llm.def"
        )
    return str(image)


def check_environment(workflow: Any, project: Project, gpu_names: list[str]) -> None:
    """Raise InputError if the run could not work to its end: a tokenizer, tools, a compiler, settings; ImportError where the compiled
    part does not fit the code. NewerError for results of a newer version.
    """
    runs_jobs_here = not workflow.deployment_settings.deployment_method
    check_tokenizers(project)
    check_tools(project)
    check_training(project, bool(gpu_names), _runs_here(workflow))
    say_what_is_auto(project)
    if runs_jobs_here:
        import_module("crawl2llm.stages.ingest.compiled")


def say_what_is_auto(project: Project) -> None:
    """One line on what is `auto`: the values where the tokens are there and up to date, else a bound.

    Raises InputError for settings that no corpus can go with.
    """
    config = with_known_vocabulary(project.variants["main"])
    if not (keys := auto_preview.keys_on_auto(config)):
        return
    manifests = _fresh_manifests(project, ("tokenize.train", "tokenize.encode"))
    packing_steps = [step for step in (steps.PACK, steps.MIX) if steps.is_used(step, config)]
    packs = next(iter(_fresh_manifests(project, packing_steps)), None)
    names = [path.split("=", 1)[1] for shard in project.sources["main"].values() for path in shard]
    print_line(auto_preview.preview_line(config, keys, names, manifests, packs), file=sys.stderr)


def _fresh_manifests(project: Project, names: Iterable[str]) -> list[Manifest]:
    """The manifests of steps of main; none unless all are up to date."""
    tasks_by_step = {step: steps.result_ids(step, project.variants["main"]) for step in names}
    fresh = project.freshness["main"]
    if any(fresh.why_stale(step, tasks, project.fingerprint("main", step)) for step, tasks in tasks_by_step.items()):
        return []
    paths = [Path(project.manifest_path("main", step, task)) for step, tasks in tasks_by_step.items() for task in tasks]
    return [manifest for path in paths if (manifest := fresh.read_manifest(path))]


def check_tokenizers(project: Project) -> None:
    """Raise InputError if a training would start from a model whose tokenizer is not that of the run, which is there and up to date."""
    step = "tokenize.train"
    for variant, config in project.variants.items():
        own_tokenizer = Path(project.manifest_path(variant, step)).with_name("tokenizer.json")
        start_from = config["pretrain"]["train"]["start_from"]
        if start_from is None or not own_tokenizer.is_file():
            continue
        if not (start_tokenizer := init_checks.tokenizer_beside(start_from)).is_file():
            continue
        try:
            init_checks.check_tokenizer(own_tokenizer, start_tokenizer, init_checks.KEY)
        except InputError:
            above = {step}
            for step_name in reversed(steps.used_steps(config)):
                above |= set(steps.needed_steps(step_name, config)) if step_name in above else set()
            # Where anything above is made again, the tokenizer may be another.
            if not any(project.why_stale(variant, step, steps.result_ids(step, config)) for step in above):
                raise


def check_tools(project: Project) -> None:
    """Raise InputError if a model is to be exported or quantized by tools that are not there."""
    back = {(move.variant, move.step, move.task) for move in unused.moves_back(project)}
    for variant, config in project.variants.items():
        for step, check in ((EXPORT_STEP, gguf_support.check_tools), (QUANTIZE_STEP, quantize_tools.check_tools)):
            names = steps.task_ids(step, config)
            existing = [name for name in names if Path(project.manifest_path(variant, step, name)).exists()]
            fresh = {name for name in existing if not project.why_stale(variant, step, [name])}
            check(config, fresh | {name for name in names if (variant, step, name) in back})
        lm_steps = [
            (step, steps.result_ids(step, config))
            for step in ("quality.lm", "quality.kenlm")
            if steps.is_used(step, config)
        ]
        # Results that are there need no program.
        exist = [
            Path(project.manifest_path(variant, step, name)).exists() for step, names in lm_steps for name in names
        ]
        if not all(exist) or any(project.why_stale(variant, step, names) for step, names in lm_steps):
            tools.check_tools(config)


def check_training(project: Project, has_gpus: bool, runs_here: bool, starting: Container[str] = ()) -> None:
    """Raise InputError if a training is to compile layers or to multiply eight bits, and cannot.

    has_gpus: whether the run has any, if it `runs_here`, on this machine in its own environment. starting: variants whose training this
    run begins; others may be planned here for a GPU that the config names.
    """
    for variant, config in project.variants.items():
        step, train = "pretrain.train", config["pretrain"]["train"]
        if not train["compile_layers"] and train["precision"] != FP8:
            continue
        exists = Path(project.manifest_path(variant, step)).exists()
        if exists and not project.why_stale(variant, step, steps.result_ids(step, config)):
            continue
        if train["precision"] == FP8 and runs_here:  # a process that trains elsewhere looks for itself
            _check_eight_bits(train["device"], config["pretrain"]["plan"]["gpu"], has_gpus, variant in starting)
        if train["compile_layers"] and runs_here:
            compiler.check_compiler("cuda" if has_gpus and train["device"] != "cpu" else "cpu")


def _check_eight_bits(device: str, planned_gpu: str | None, has_gpus: bool, starts: bool) -> None:
    """Raise InputError if this machine cannot train with `precision: fp8`, and it starts to, or the config names no GPU of another."""
    if has_gpus and device != "cpu":
        check_precision(FP8, gpus.local_gpu_name())
        float8.check_torchao()
    elif starts or device == "cpu" or (device == "auto" and planned_gpu is None):
        try:
            float8.check_capability()
        except InputError as error:
            remedy = (
                ""
                if starts
                else "; to plan for a GPU elsewhere, set pretrain.train.device to cuda and pretrain.plan.gpu to its kind"
            )
            raise InputError(f"{error}{remedy}") from None


def check_planned_training(workflow: Any, project: Project, gpu_names: list[str]) -> None:
    """Raise WorkflowError if a training that this run begins, here, cannot work: `check_environment` lets it be planned for another GPU."""
    from snakemake.exceptions import WorkflowError

    rules = {steps.rule_of("pretrain.train"), steps.rule_of(steps.RUNG)}
    jobs = [job for job in snakemake_internals.planned_jobs(workflow) if job.rule.name in rules]
    if workflow.touch or not _runs_here(workflow):
        return
    try:
        check_training(
            project, bool(gpu_names), runs_here=True, starting={job.wildcards_dict["variant"] for job in jobs}
        )
    except InputError as error:
        raise WorkflowError(str(error)) from None


def _runs_here(workflow: Any) -> bool:
    """Whether jobs run on this machine, in its own environment."""
    return workflow.resource_settings.nodes is None and not workflow.deployment_settings.deployment_method


def freeze_code(workflow: Any, project: Project) -> None:
    """From here on, jobs and programs work from a copy of the code and the config: an edit meanwhile changes nothing."""
    code = code_snapshot.copy_code(
        Path(workflow.basedir), not workflow.deployment_settings.deployment_method, plugins.frozen_files()
    )
    complete = code_snapshot.write_config(project.variants["main"], project.held)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code / CODE_FOLDER), os.environ["PYTHONPATH"]])
    snakemake_internals.start_jobs_from(workflow, code / "Snakefile", complete)
    code_snapshot.forget_others(code, complete)


def nameless_model_lines(project: Project) -> list[str]:
    """A line for each model of an earlier version, which had no name: nothing reads it now, and its files may be large."""
    places = [
        Path("results") / variant / steps.folder_of(step)
        for variant in project.variants
        for step in model_registry.MAKERS
        if steps.STEPS[step].per == "model"
    ]
    return [
        f"{place}/manifest.json is of an earlier version, whose model had no name; nothing reads it now. To remove it: "
        f"rm -r {place}/{{manifest.json,losses.jsonl,model}}"
        for place in places
        if (place / "manifest.json").exists()
    ]


def forget_forced_tasks(workflow: Any, project: Project) -> None:
    """A person who forces a task wants all its shards made again, also those whose manifests are up to date."""
    for job in [] if workflow.touch else snakemake_internals.forced_jobs(workflow):
        variant, step, tasks = tasks_of(job, project) or ("", "", [])
        for task in tasks:
            Manifest.remove_with_copy(Path(project.manifest_path(variant, step, task)))


def replacement_notice(workflow: Any, project: Project) -> str:
    """What to say before results take the place of others; "" where none do."""
    all_tasks = [
        job_tasks for job in snakemake_internals.planned_jobs(workflow) if (job_tasks := tasks_of(job, project))
    ]
    late = [of for of in all_tasks if project.replaces_results(*of)]
    reasons = [project.why_stale(*of) or "" for of in late]
    above = sum(reason.startswith(ABOVE_PREFIX) for reason in reasons)
    words = replacement_text(len(late) - above, above, len(all_tasks))
    return f"{words}; {KEEP_RENAMED}" if any(MODULES_RENAMED in reason for reason in reasons) else words


def prepare_run(workflow: Any, project: Project, tell: Callable[[str], None]) -> None:
    """Before the first job: freeze code and config, set results aside or remove them that the config no longer has, bring others back."""
    freeze_code(workflow, project)
    if paths := stale_results.stale_files(project.variants):
        tell(f"removed {stale_results.stale_files_text(paths)}")
        stale_results.remove_files(paths)
    if moves := list(unused.moves_aside(project.variants)):
        tell(f"set aside {unused.moves_text(moves)}, {unused.LEAVING_TEXT}")
        unused.make_moves(moves)
    if moves := unused.moves_back(project):
        tell(f"brought back {unused.moves_text(moves)} {unused.RETURN_TEXT}")
        unused.make_moves(moves)
    for line in nameless_model_lines(project):
        tell(line)
    forget_forced_tasks(workflow, project)
