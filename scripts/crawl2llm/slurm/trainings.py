"""Where the trainings of a config do not fit what the profile asks SLURM for: processes, nodes, the memory of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry, steps
from crawl2llm.commands.plan import training, tuning
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.errors import InputError
from crawl2llm.slurm import queue
from crawl2llm.slurm.needs import Need
from crawl2llm.training import gpus, parallel, resource_plan
from crawl2llm.training import memory as estimate
from crawl2llm.training.float8 import check_precision
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

PRETRAIN = steps.rule_of("pretrain.train")
TUNES = {steps.rule_of(step): step for step in tuning.STEPS}  # by rule


def placement_problems(needs: list[Need], config: dict[str, Any], variant: str = "main") -> tuple[list[str], list[str]]:
    """(errors, warnings) where the config of a variant starts other processes than the profile gives GPUs and nodes for."""
    errors: list[str] = []
    warnings: list[str] = []
    config_label = "the config" if variant == "main" else f"variant {variant}"
    for need in needs:
        cards = queue.count_gpus(need.gres)
        if need.cards < cards * need.nodes:
            # Snakemake cuts what a job asks for down to the run's cap, and the cap would not hold.
            errors.append(f"{need.rule}: takes {cards * need.nodes} GPUs, more than the profile's gpu_cap")
        for key, section in process_sections(need.rule, config) if cards else ():
            processes, nodes = section["processes"], section["nodes"]
            try:
                if "parallel" in section:
                    train = TrainSettings.model_validate(section)
                    parallel.check_degrees(parallel.Degrees.of_settings(train), processes * nodes, train)
                    check_precision(train.precision, gpus.name_in_profile(need.gres))
            except InputError as error:
                errors.append(f"{need.rule}: {error}")
            if nodes != need.nodes:
                errors.append(
                    f"{need.rule}: the profile asks for {need.nodes} nodes, {config_label} has {key}.nodes: {nodes}"
                )
            if processes > cards:
                errors.append(
                    f"{need.rule}: {config_label} has {key}.processes: {processes}, the profile {cards} GPUs of a node"
                )
            elif processes < cards:
                warnings.append(
                    f"{need.rule}: the profile takes {cards} GPUs of a node, and {key}.processes: {processes} leaves some idle"
                )
    return errors, warnings


def process_sections(rule: str, config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, settings) of each section that sets the processes of a rule: that of its step, and of each model with processes of its own."""
    step = steps.step_of(rule)
    stage, _, name = step.partition(".")
    section = config.get(stage, {}).get(name, {})
    if "processes" in section:
        yield step, section
    for model, entry in config.get("models", {}).items():
        if entry["step"] == step and "processes" in entry:
            yield f"models.{model}", {**section, **entry}


def memory_problems(needs: list[Need], configs: dict[str, dict[str, Any]], folder: Path) -> tuple[list[str], list[str]]:
    """(errors, warnings) where a training would not fit the GPUs that the profile asks for, by the estimate of pretrain.plan.

    configs: complete, by variant, of those whose training would run. folder: of the run, whose tokens may be counted. An error is what
    takes over memory.TOLERANCE × what there is, as in the trainer, a warning over resource_plan.TIGHT × that. Nothing is said before the
    shape is known.
    """
    errors: list[str] = []
    warnings: list[str] = []
    last = LastRun(folder)
    for need in needs:
        if need.rule != PRETRAIN or not queue.count_gpus(need.gres):
            continue
        for variant, config in configs.items():
            label = need.rule if variant == "main" else f"{need.rule} of {variant}"
            tokens, entries = counted_tokens(last, variant)
            results = folder / "results" / variant / "pretrain" / "train"
            try:
                _, forecast = training.summary_and_placement(
                    config, tokens, entries, results, gpus.name_in_profile(need.gres)
                )
            except InputError as error:
                warnings.append(f"{label}: whether it fits its GPUs is not known: {error}")
                continue
            bytes_left = forecast["available"] - forecast["memory"]["total"]
            if forecast["refused"]:
                size = forecast["memory"][forecast["largest"]] / 1e9
                errors.append(
                    f"{label}: {forecast['refusal']}. The largest part is {forecast['largest']}, {size:.1f} GB. Where the GPU has more: "
                    "pretrain.plan.gpu_memory"
                )
            elif not forecast["fits"]:
                warnings.append(f"{label}: {forecast['refusal']}. It may do all the same: the estimate is not so exact")
            elif forecast["tight"]:
                warnings.append(
                    f"{label}: of the GPU's memory {bytes_left / 1e9:.1f} GB are left, by the estimate of pretrain.plan"
                )
    return errors, warnings


def counted_tokens(last: LastRun, variant: str) -> tuple[int | None, int | None]:
    """`training.tokens_and_vocabulary` of the variant, or of `main`, whose tokens it may share."""
    return training.tokens_and_vocabulary(
        last, next((name for name in (variant, "main") if last.manifests(name, training.TOKENS)), "main")
    )


def tuning_problems(needs: list[Need], configs: dict[str, dict[str, Any]], folder: Path) -> tuple[list[str], list[str]]:
    """As `memory_problems`, where a fine-tuning of a model would not fit. configs: of those variants in which any would run."""
    errors: list[str] = []
    warnings: list[str] = []
    for need in needs:
        tune = TUNES.get(need.rule, "")
        if not tune or not queue.count_gpus(need.gres):
            continue
        for variant, config in configs.items():
            of_variant = "" if variant == "main" else f" of {variant}"
            profile_gpu = gpus.name_in_profile(need.gres)
            base = None
            for model in model_registry.models_made_by(config, tune):
                if not tuning.is_trained(config, tune, model):
                    continue
                label = f"{need.rule} {model}{of_variant}"
                try:
                    gpu = gpus.training_gpu(
                        PlanSettings.model_validate(config["pretrain"]["plan"]), "cuda", profile_gpu
                    )
                    assert gpu is not None
                    if model_registry.is_from_published(config, model):
                        shape = tuning.published_shape(config, model)
                    else:
                        base = base or resource_plan.shape_of(
                            training.plan_summary(config, *counted_tokens(LastRun(folder), variant)), "adamw"
                        )
                        shape = base
                except InputError as error:
                    warnings.append(f"{need.rule}{of_variant}: whether it fits its GPUs is not known: {error}")
                    break
                planned = tuning.tuning_of(config, tune, model, shape)
                try:
                    memory_parts = estimate.fitting_memory_parts(
                        planned.shape,
                        planned.engine,
                        planned.placement,
                        int(gpu.memory),
                        1,
                        cuda=True,
                        where=tune,
                    )
                except InputError as error:
                    errors.append(f"{label}: {error} ({gpus.with_article(gpu.name)})")
                    continue
                if (total := sum(memory_parts.values())) > gpu.memory:
                    warnings.append(
                        f"{label}: by the estimate it needs {estimate.format_bytes(total)}, and {gpus.with_article(gpu.name)} has "
                        f"{estimate.format_bytes(gpu.memory)}. It may do all the same: the estimate is not so exact"
                    )
    return errors, warnings
