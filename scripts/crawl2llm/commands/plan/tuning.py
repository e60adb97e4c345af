"""What training a published model further takes, by its config.json and the headers of its weights: memory of a process, hours.

One definition for `crawl2llm plan`, the preflight and the table in docs/memory.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.core import free_memory
from crawl2llm.core.console import format_duration, format_quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.stages.align.settings import RewardEntry
from crawl2llm.stages.compress.checks import PRUNE_STEP, TEXT_TOKENS
from crawl2llm.stages.pretrain.continued_checks import known_context
from crawl2llm.stages.pretrain.steps import source_of_model
from crawl2llm.training import cost_estimate, gpus, memory
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate.adapters import with_adapter
from crawl2llm.training.estimate.shape import PROGRAM, with_value_model
from crawl2llm.training.measures import peak_of
from crawl2llm.training.model_loading import context_by
from crawl2llm.training.pretraining_settings import PlanSettings
from crawl2llm.training.published.sizes import read_sizes
from crawl2llm.training.resource_plan import format_count, parts_text

STEPS = (*model_registry.TUNING_STEPS, *TEXT_TOKENS)
PAIRS_STEP = {"finetune.train": "finetune.pairs"}  # whose pairs are trained on; align.pairs of the others


@dataclass(frozen=True)
class Tuning:
    """A training of a step on a model of this shape. settings: of the step, for this model; sequences: of a row of the step's data."""

    step: str
    settings: Any
    shape: memory.Shape
    engine: EngineSettings
    placement: memory.Placement
    sequences: int

    def memory_parts(self, cuda: bool) -> dict[str, int]:
        """As `memory.memory_parts`."""
        return memory.memory_parts(self.shape, self.engine, self.placement, cuda)


def draws_answers(step: str, settings: Any) -> bool:
    """Whether a model is trained on answers that it gives itself. settings: of the step."""
    return step == model_registry.ALIGN_STEP and settings.method not in model_registry.BY_PREFERENCE


def is_trained(config: dict[str, Any], step: str, model: str) -> bool:
    """Whether a step of STEPS trains a model, and does not only make it smaller."""
    return bool(step != PRUNE_STEP or model_registry.section(config, step, model)[TEXT_TOKENS[step]])


def tuning_of(config: dict[str, Any], step: str, model: str, shape: memory.Shape) -> Tuning:
    """The training that makes a model by a step. shape: of the root that it comes from."""
    settings: Any = settings_class(step).model_validate(model_registry.section(config, step, model))
    root_shape, shape = shape, shape_in_line(config, str(model_registry.parent(config, model)), shape)
    if step == model_registry.CONTINUE_STEP:
        return text_training_of(step, settings, replace(shape, context=settings.context or shape.context))
    if step == PRUNE_STEP:
        return text_training_of(step, settings, pruned_shape(shape, settings))
    if step == model_registry.DISTIL_STEP:
        asks_teacher = not settings.top_k and settings.text_share < 1
        teacher = shape_in_line(config, settings.teacher, root_shape) if asks_teacher else None
        return text_training_of(
            step, settings, replace(shape, teacher=teacher and replace(teacher, context=shape.context))
        )
    draws = draws_answers(step, settings)
    has_pairs = step == model_registry.REWARD_STEP or (step == model_registry.ALIGN_STEP and settings.method == "dpo")
    sequences, processes = 2 if has_pairs else 1, settings.processes * settings.nodes
    number = settings.batch_size * (settings.generations if draws else 1)
    engine = EngineSettings.of_tuning(settings)
    # Engines keep the reference of answers that are drawn in the place of a mean (stages/align/online.py).
    if draws and settings.adapter == "none":
        engine = replace(engine, ema=0.5)
    placement = memory.Placement(
        micro_batch=sequences * min(settings.micro_batch, math.ceil(number / processes)),
        processes=processes,
        activation_checkpointing=settings.activation_checkpointing,
        async_checkpoints=settings.async_checkpoints,
        largest=sequences * number,
    )
    return Tuning(step, settings, shape_for(shape, settings, step), engine, placement, sequences)


def text_training_of(step: str, settings: Any, shape: memory.Shape) -> Tuning:
    """The training of a step of TEXT_TOKENS on windows of the shape's context."""
    processes, windows = settings.processes * settings.nodes, max(1, settings.batch_tokens // shape.context)
    placement = memory.Placement(
        micro_batch=min(settings.micro_batch, math.ceil(windows / processes)),
        processes=processes,
        activation_checkpointing=settings.activation_checkpointing,
        largest=windows,
    )
    return Tuning(step, settings, shape, EngineSettings.of_tuning(settings), placement, 1)


def shape_in_line(config: dict[str, Any], model: str, shape: memory.Shape) -> memory.Shape:
    """The shape of a model whose root has this one: pruned, and of a longer context, as those in between say."""
    for name in reversed(model_registry.own_line(config, model)):
        if (step := model_registry.making_task(config, name)[0]) == PRUNE_STEP:
            shape = pruned_shape(shape, settings_class(step).model_validate(model_registry.section(config, step, name)))
    return replace(shape, context=known_context(config, model) or shape.context)


def pruned_shape(shape: memory.Shape, settings: Any) -> memory.Shape:
    """The shape of a model after compress.prune; a number of heads is not rounded."""
    if settings.method != "structured":
        return shape
    width, kv = shape.width or shape.hidden, shape.kv or shape.width or shape.hidden
    layers, feed = (
        max(1, round(share * of))
        for share, of in ((settings.layers, shape.layers), (settings.neurons, shape.intermediate))
    )
    lost = 2 * shape.hidden * (width + kv) * (1 - settings.heads) + 3 * shape.hidden * (shape.intermediate - feed)
    return replace(
        shape,
        parameters=shape.outside_parameters + layers * round(shape.layer_parameters - lost),
        layers=layers,
        intermediate=feed,
        width=round(settings.heads * width),
        kv=round(settings.heads * kv),
    )


def shape_for(shape: memory.Shape, settings: Any, step: str) -> memory.Shape:
    """The shape of a training with the `settings` of a step, of a model's `shape`; see stages/align/{online,ppo}.py.

    A reward model of the run has that body too; one of another run as many parameters as its manifest says.
    """
    tuned_shape = replace(shape, context=settings.max_length)
    if step == model_registry.REWARD_STEP:
        return replace(tuned_shape, vocabulary=1)
    if not draws_answers(step, settings):
        return tuned_shape
    body = with_value_model(shape).value_parameters
    judges = [entry for entry in settings.rewards if entry.reward == "model"]
    tuned_shape = replace(
        tuned_shape,
        cached_layers=shape.layers,
        drawn_rows=settings.answers_at_once,
        reward_parameters=sum(reward_parameters(judge, body) for judge in judges),
    )
    return with_value_model(tuned_shape) if settings.method == model_registry.PPO else tuned_shape


def reward_parameters(entry: RewardEntry, body: int) -> int:
    """Parameters of the reward model of an entry of rewards. body: those of one of the run."""
    if entry.manifest is None:
        return body
    try:
        return int(Manifest.read_unchecked(Path(entry.manifest)).summary.get("parameters", body))
    except ManifestError:  # which the check of the config names
        return body


def published_shape(config: dict[str, Any], model: str) -> memory.Shape:
    """The shape of the published model that a model comes from.

    Raises InputError for one that is not here, or that cannot be trained.
    """
    root = model_registry.root(config, model)
    sizes = read_sizes(source_of_model(config, root), f"models.{root}")
    if sizes.is_quantized:
        raise InputError(f"models.{root}: its weights are quantized, and cannot be trained")
    return memory.shape_of_config(sizes.as_config(), sizes.parameters, context_by(sizes.value))


def operations_per_token(tuning: Tuning) -> float:
    """Floating-point operations of a forward and a backward pass on a token, those for the reference of preferences and for a teacher too.

    Chowdhery et al. 2022 (PaLM, https://arxiv.org/abs/2204.02311, appendix B): 2 for each parameter that is multiplied in the forward pass,
    2 for the gradient of activations, and 2 for that of weights, which an adapter's frozen weights have none of (Hu et al. 2021,
    https://arxiv.org/abs/2106.09685, section 4.2); attention 12 · layers · width · tokens. Recomputation is a forward pass more.
    """
    adapted = with_adapter(tuning.shape, tuning.engine)
    multiplied, attention = forward_operations(tuning.shape)
    forward = multiplied + attention
    backward = 2 * forward if adapted.adapter is None else multiplied + 2 * attention + 6 * adapted.trained
    again = forward * tuning.placement.activation_checkpointing
    reference = forward if tuning.step == model_registry.ALIGN_STEP else 0
    teacher = sum(forward_operations(tuning.shape.teacher)) if tuning.shape.teacher else 0
    return float(forward + backward + again + reference + teacher)


def forward_operations(shape: memory.Shape) -> tuple[int, int]:
    """(of the products with weights, of attention) for a token, in a forward pass."""
    multiplied = shape.parameters - (shape.outside_parameters - shape.vocabulary * shape.hidden)
    return 2 * multiplied, 4 * shape.layers * (shape.width or shape.hidden) * shape.context


def most_rows(config: dict[str, Any], work: Work, variant: str, step: str) -> tuple[int, bool]:
    """(rows that a step trains on, whether they were counted): those of the last run, else the most that the config allows."""
    pairs_step = PAIRS_STEP.get(step, "align.pairs")
    owner = work.owning_variant(variant, pairs_step)
    manifest = work.last.manifests(work.last.measured_variant(owner, pairs_step), pairs_step).get("")
    if manifest and (owner, pairs_step) not in work.tasks_by_place and isinstance(manifest.summary.get("train"), int):
        return int(manifest.summary["train"]), True
    stage, _, name = pairs_step.partition(".")
    return int(config[stage][name]["max_train"]), False


def tuning_lines(tasks: list[Task], work: Work) -> Iterator[str]:
    """Lines for people on every training of a published model, or of what comes from one, among the tasks of a plan."""
    for task in tasks:
        config = work.variants.get(task.variant)
        if config is None or task.step not in STEPS or not model_registry.is_from_published(config, task.id):
            continue
        of_variant = "" if task.variant == "main" else f" of {task.variant}"
        heading = f"{task.step} {task.id}{of_variant}"
        try:
            root_shape = published_shape(config, task.id)
            tuning = tuning_of(config, task.step, task.id, root_shape)
            if not is_trained(config, task.step, task.id):
                whole = shape_in_line(config, str(model_registry.parent(config, task.id)), root_shape)
                size = PROGRAM + 4 * (whole.parameters + tuning.shape.parameters)
                yield f"{heading}: nothing is trained; memory: {memory.format_bytes(size)}, the model and what is left of it in fp32"
                continue
            if task.step in TEXT_TOKENS:
                tokens, extent = _text_extent(tuning)
            else:
                tokens, extent = _tuning_extent(tuning, *most_rows(config, work, task.variant, task.step))
            lines = [*training_lines(tuning, config, task.profile_gpu, tokens, extent)]
        except InputError as error:
            lines = [f"what it takes is not known yet: {error}"]
        yield f"{heading}: {lines[0]}"
        yield from (f"  {line}" for line in lines[1:])


def _text_extent(tuning: Tuning) -> tuple[float, str]:
    """(tokens that are trained on, the same in words)."""
    tokens = getattr(tuning.settings, TEXT_TOKENS[tuning.step])
    steps = math.ceil(tokens / tuning.settings.batch_tokens)
    windows = format_quantity(tuning.settings.batch_tokens // tuning.shape.context, "window")
    return tokens, f"{format_count(tokens)} tokens, {steps:,} steps of {windows} of {tuning.shape.context:,} tokens"


def _tuning_extent(tuning: Tuning, rows: int, is_counted: bool) -> tuple[float, str]:
    """(most tokens that are trained on, rows and steps in words)."""
    settings, tokens = tuning.settings, rows * tuning.sequences * tuning.settings.max_length
    steps = max(1, math.ceil(rows * settings.epochs / settings.batch_size))
    return tokens * settings.epochs, (
        f"{'' if is_counted else 'at most '}{rows:,} rows, {settings.epochs:g} epochs of at most {format_count(tokens)} tokens, "
        f"{steps:,} steps"
    )


def training_lines(
    tuning: Tuning, config: dict[str, Any], profile_gpu: str, tokens: float, extent: str
) -> Iterator[str]:
    """What a training trains, its memory, what would make it fit, and its hours. tokens: trained on at most, as `extent` says."""
    plan_settings = PlanSettings.model_validate(config["pretrain"]["plan"])
    settings, shape = tuning.settings, with_adapter(tuning.shape, tuning.engine)
    gpu = gpus.training_gpu(plan_settings, settings.device, profile_gpu)
    parameters = format_count(shape.parameters)
    if shape.adapter:
        parameters = f"{format_count(shape.trained)} of {parameters}"
    teacher = f" by a teacher of {format_count(shape.teacher.parameters)}" if shape.teacher else ""
    yield f"{settings.adapter if shape.adapter else 'all weights'}, {parameters} parameters are trained{teacher}; {extent}"
    yield from memory_lines(tuning, gpu)
    yield hours_line(tuning, plan_settings, gpu, tokens)


def memory_lines(tuning: Tuning, gpu: gpus.Gpu | None) -> Iterator[str]:
    """The memory of a process beside that of its GPU, or of all processes beside what is free here, and what would make them fit."""
    placement, parts = tuning.placement, tuning.memory_parts(gpu is not None)
    sharing = 1 if gpu else placement.processes  # processes that share what is available
    total, available = sharing * sum(parts.values()), gpu.memory if gpu else free_memory.available_bytes()
    device = (
        f"{gpus.with_article(gpu.name)} of {available / 1e9:.0f} GB"
        if gpu
        else f"{memory.format_bytes(available)} free here"
    )
    refusal = "DOES NOT FIT" if total > memory.TOLERANCE * available else "may not fit, the estimate is not so exact"
    yield (
        f"memory of a process: {memory.format_bytes(total / sharing)} ({parts_text(parts)}), {placement.processes} × on {device}: "
        f"{'fits' if total <= available else refusal}"
    )
    if total > available:
        changes = memory.changes_that_fit(
            tuning.shape, tuning.engine, placement, available, sharing, gpu is not None, tuning.step
        )
        yield f"to make it fit: {', or '.join(changes)}"


def hours_line(tuning: Tuning, plan_settings: PlanSettings, gpu: gpus.Gpu | None, tokens: float) -> str:
    """The hours of a training on so many tokens, and their price, if they are known."""
    settings, processes = tuning.settings, tuning.placement.processes
    if draws_answers(tuning.step, settings):
        return "hours are not known: they are those of the answers that it draws"
    peak = peak_of(gpu.name, settings.precision) if gpu else cost_estimate.THREAD_FLOPS * settings.threads
    if peak is None:
        return f"hours are not known: no peak of {gpus.with_article(gpu.name) if gpu else ''} is known for {settings.precision}"
    mfu = plan_settings.mfu or cost_estimate.MFU
    rate = mfu * peak if gpu else peak
    basis = "30 GFLOP/s of a thread, assumed"
    if gpu:
        basis = f"an MFU of {mfu:.0%}, {'set' if plan_settings.mfu else 'assumed'}"
    cost = cost_estimate.price_hours(
        tokens * operations_per_token(tuning) / rate / processes / 3600, processes if gpu else 0, plan_settings
    )
    machine = format_quantity(processes, "GPU") if gpu else "this machine"
    gpu_hours = f" = {cost['gpu_hours']:,.1f} GPU-hours" if gpu else ""
    price = f", {cost['price']:,.0f} {cost['currency']}" if "price" in cost else ""
    return f"at most about {format_duration(3600 * cost['hours'])} on {machine}{gpu_hours}{price}, by {basis}"
