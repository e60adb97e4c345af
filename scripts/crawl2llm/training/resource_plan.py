"""Where a planned training runs: the memory of a process by its parts, whether it fits, disk. Nothing here decides a byte.

One definition for the step pretrain.plan, `crawl2llm plan`, the preflight and the table in docs/memory.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import gcd
from typing import Any

from crawl2llm.core import free_memory
from crawl2llm.core.console import format_duration, format_quantity
from crawl2llm.core.settings import AUTO
from crawl2llm.training import auto, checks, cost_estimate, gpus, memory, offload
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.parameters import count_model_parameters, model_of_summary
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

PLACES = {"host": "in the node's memory", "nvme": "on its disk"}  # of what is offloaded
TIGHT = 0.9  # share of a GPU's memory above which a plan says that there is no reserve


def shape_of(summary: dict[str, Any], optimizer: str) -> memory.Shape:
    """What decides the memory, from the summary of pretrain.plan. Of several experts a token's activations are those of its own."""
    model, vocabulary = model_of_summary(summary["shape"]), summary["shape"]["vocabulary"]
    counted = count_model_parameters(model, vocabulary)
    return memory.Shape(
        parameters=counted.total,
        layers=model.layers,
        hidden=model.hidden_size,
        intermediate=counted.feed * counted.chosen,
        vocabulary=vocabulary,
        context=model.context,
        width=counted.width,
        kv=counted.kv,
        matrices=counted.non_embedding if optimizer == "muon" else 0,
        experts=counted.experts,
        tables=counted.embedding,
    )


def shape_as_built(summary: dict[str, Any], optimizer: str, config: Any, parameters: int) -> memory.Shape:
    """As `shape_of`, with what the model itself says: its parameters, and the widths of attention by its configuration of transformers."""
    width, kv = memory.attention_widths(config)
    return replace(shape_of(summary, optimizer), parameters=parameters, width=width, kv=kv)


def step_sequences(summary: dict[str, Any]) -> int:
    """The largest number of sequences that every step has a multiple of: under a ramp its first steps have fewer."""
    whole = summary["global_batch_tokens"] // summary["shape"]["context"]
    return gcd(whole, *(each for _, each in summary.get("batch_ramp", ())))


def count_micro_batches(summary: dict[str, Any], train: TrainSettings) -> int:
    """Micro-batches of each process in a step; under a ramp in the last. summary: of pretrain.plan; train: pretrain.train, complete."""
    at_once = train.micro_batch * train.processes * train.nodes * summary["shape"]["context"]
    return max(1, round(summary["global_batch_tokens"] / at_once))


def plan_resources(
    summary: dict[str, Any],
    train: TrainSettings,
    plan_settings: PlanSettings,
    profile_gpu: str = "",
    last: dict[str, Any] | None = None,
    has: float | None = None,
    predicted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What a training with this summary takes where it runs.

    train: pretrain.train with its placement; plan_settings: pretrain.plan. has: bytes of memory, in the place of the GPU's or of what this
    machine has free. last, predicted: see `cost_estimate.estimate_cost`. Raises InputError for a GPU of which nothing is
    known, and for processes that pretrain.train.parallel does not allow.
    """
    gpu = gpus.training_gpu(plan_settings, train.device, profile_gpu)
    processes, cuda = train.processes * train.nodes, gpu is not None
    shape = shape_of(summary, train.optimizer)
    checks.check_settings(train, processes)
    settings = EngineSettings.of_pretraining(train)
    placement = memory.Placement(
        micro_batch=train.micro_batch,
        processes=processes,
        activation_checkpointing=train.activation_checkpointing,
        selective_checkpointing=train.selective_checkpointing,
        async_checkpoints=train.async_checkpoints,
        parallel=Degrees.of_settings(train),
        nodes=train.nodes,
        sequences=step_sequences(summary),
        largest=summary["global_batch_tokens"] // summary["shape"]["context"],
    )
    parts = memory.memory_parts(shape, settings, placement, cuda)
    processes_here = 1 if cuda else train.processes
    has = has or (gpu.memory if gpu else free_memory.available_bytes())
    total = processes_here * sum(parts.values())
    fits, refused = total <= has, total > memory.TOLERANCE * has
    estimate: dict[str, Any] = {
        "gpu": gpu.name if gpu else None,
        "processes": processes,
        "memory": {**parts, "total": sum(parts.values())},
        "available": has,
        "fits": fits,
        "refused": refused,
        "tight": total > TIGHT * has and not refused,
        "disk": max_checkpoints(summary, train) * summary["checkpoint_bytes"] + summary["model_bytes"],
        "keep_every": train.keep_every if summary["steps"] is None else 0,
    }
    if train.precision == checks.FP8:
        estimate["precision"] = train.precision
    if gpu and offload.is_used(settings):
        estimate["offloaded"] = memory.offloaded_bytes(shape, settings, placement)
    if not fits:
        estimate["changes"] = memory.changes_that_fit(shape, settings, placement, has, processes_here, cuda)
        where = gpus.with_article(gpu.name) if gpu else memory.MACHINE
        bound = memory.is_upper_bound(settings, placement, cuda)
        estimate["refusal"] = str(
            memory.refusal_error("pretrain.train", parts, has, processes_here, estimate["changes"], where, bound)
        )
        estimate["largest"] = max(parts, key=lambda name: parts[name])
    return estimate | cost_estimate.estimate_cost(summary, train, plan_settings, gpu, last, predicted)


def max_checkpoints(summary: dict[str, Any], train: TrainSettings) -> int:
    """The most checkpoints that lie on the disk at once, one that is just written included.

    Those that stay are the newest, those of every n-th step and the best one. Saved are those of every `checkpoint_every` and `keep_every`
    steps, the last and, with `keep_best`, one after each validation. Before the steps are known, every n-th step's are not counted.
    """
    newest, steps = train.keep_checkpoints + 1, summary["steps"]
    best, back = train.keep_best or bool(train.early_stop), 0
    if train.roll_backs:  # at most those that a run may go back to, with a best one before each
        back = train.roll_back_every
        newest += (train.spike_window // back + 2) * (1 + best)
    if steps is None:
        return int(newest + best)
    interval = train.keep_every
    saved_steps = {steps, *range(train.checkpoint_every, steps + 1, train.checkpoint_every)}
    saved_steps |= set(range(interval, steps + 1, interval)) if interval else set()
    saved_steps |= set(range(back, steps + 1, back)) if back else set()
    if best:
        between = summary["auto"].get("validate_every", train.validate_every)
        between = auto.validation_interval(steps) if between == AUTO else between
        saved_steps |= set(range(between, steps + 1, between)) if between else set()
    saved_steps = {
        step for step in saved_steps if step > summary.get("after_step", 0)
    }  # those before are another run's
    older = sorted(saved_steps)[:-newest]
    marked = sum(step % interval == 0 for step in older) if interval else 0
    return min(newest, len(saved_steps)) + marked + (best and marked < len(older))


def format_count(value: float) -> str:
    """`1.04 B`, `125 M`, `93 k`: a count in three digits."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def format_bytes(value: float) -> str:
    """Bytes as `3.2 GB`, `3.2 MB` or `32 kB`."""
    return memory.format_bytes(value)


def parts_text(parts: dict[str, int]) -> str:
    """The parts of a process's memory in GB, without those that round to nothing: `program 0.6, weights 1.2`."""
    return ", ".join(f"{name} {each / 1e9:.1f}" for name, each in parts.items() if each >= 5e7)


def steps_text(summary: dict[str, Any]) -> str:
    """`9 steps after step 15`: those that are to be trained."""
    before = summary.get("after_step", 0)
    return f"{summary['steps'] - before:,} steps{f' after step {before:,}' if before else ''}"


def memory_text(parts: dict[str, int], processes: int, gpu: str | None, available: float) -> str:
    """The memory of each of so many processes, and what there is: of a GPU of this product, or free on this machine."""
    device = f"{gpus.with_article(gpu)} of {available / 1e9:.0f} GB" if gpu else f"{format_bytes(available)} free here"
    return f"memory of a process: {format_bytes(sum(parts.values()))} ({parts_text(parts)}), {processes} × on {device}"


def misfit_text(is_refused: bool) -> str:
    """Of a training whose estimate is more than there is: whether it would be refused."""
    return "DOES NOT FIT" if is_refused else "may not fit, the estimate is not so exact"


def hours_text(cost: dict[str, Any], gpu_count: int, basis: str) -> str:
    """The hours of a training and their price. cost: see `cost_estimate.price_hours`; gpu_count: 0 on a CPU."""
    machine = format_quantity(gpu_count, "GPU") if gpu_count else "this machine"
    gpu_hours = f" = {cost['gpu_hours']:,.1f} GPU-hours" if gpu_count else ""
    price = f", {cost['price']:,.0f} {cost['currency']}" if "price" in cost else ""
    return f"about {format_duration(3600 * cost['hours'])} on {machine}{gpu_hours}{price}, by {basis}"


def plan_lines(summary: dict[str, Any], estimate: dict[str, Any]) -> list[str]:
    """The plan for people: what is trained, its memory, how long it takes, its disk; and where it does not fit, why and what to change."""
    sizes, parts = summary["parameters"], dict(estimate["memory"])
    active = f", {format_count(sizes['active'])} active" if sizes["active"] != sizes["total"] else ""
    counted = f", counted as {sizes['counted_as']}" if sizes["counted_as"] != "itself" else ""
    head = f"{format_count(sizes['total'])} parameters ({format_count(sizes['embedding'])} embeddings{active}{counted})"
    if summary["tokens"]:
        head += (
            f", {format_count(summary['tokens'])} tokens = {summary['tokens_per_parameter']:,.1f} a parameter (Chinchilla: "
            f"{summary['chinchilla_tokens_per_parameter']}), {steps_text(summary)}, {summary['flops']['total']:.1e} FLOP"
        )
    del parts["total"]
    if estimate["fits"]:
        verdict = "fits with less than a tenth to spare" if estimate["tight"] else "fits"
    else:
        verdict = misfit_text(estimate["refused"])
    out = [head, f"{memory_text(parts, estimate['processes'], estimate['gpu'], estimate['available'])}: {verdict}"]
    if sizes_beside := [
        f"{format_bytes(each)} {PLACES[kind]}" for kind, each in estimate.get("offloaded", {}).items() if each
    ]:
        out.append(f"offloaded by each process: {' and '.join(sizes_beside)}")
    if not estimate["fits"]:
        out.append(f"to make it fit: {', or '.join(estimate['changes'])}")
    if "hours" in estimate:
        out.append(hours_text(estimate, estimate["processes"] if estimate["gpu"] else 0, estimate["basis"]))
    elif "hours_per_billion_tokens" in estimate:
        out.append(f"{estimate['hours_per_billion_tokens']:,.2g} hours for a billion tokens, by {estimate['basis']}")
    else:
        out.append(f"hours are not known: {estimate['basis']}")
    out += predicted_lines(estimate.get("predicted"))
    if estimate.get("precision") == checks.FP8:
        counted = "memory and speed are" if estimate.get("source") in ("assumed", "predicted") else "memory is"
        out.append(f"precision is {checks.FP8}, and {counted} estimated as for bf16")
    more = f", and a checkpoint more for every {estimate['keep_every']:,} steps" if estimate["keep_every"] else ""
    out.append(
        f"a checkpoint {format_bytes(summary['checkpoint_bytes'])}; with the model at most {format_bytes(estimate['disk'])} of disk{more}"
    )
    return out


def predicted_lines(predicted: dict[str, Any] | None) -> list[str]:
    """What prediction/predict.py says, for people; [] without it."""
    if not predicted:
        return []
    both = (("compiled", "compiled"), ("eager", "not compiled"))
    rates = [
        f"{words} {predicted[name]['tokens_per_second']:,.0f} ({predicted[name]['mfu']:.0%} MFU)"
        for name, words in both
    ]
    shares = ", ".join(f"{part} {share:.0%}" for part, share in predicted["shares"].items() if share >= 0.005)
    lines = [
        f"predicted, not measured: {predicted['tokens_per_second']:,.0f} tokens/s; {', '.join(rates)}; of a step {shares}"
    ]
    if changes := [
        f"{', '.join(f'{key}: {json.dumps(value)}' for key, value in change['settings'].items())} ({change['gain']:+.0%})"
        for change in predicted["changes"]
    ]:
        lines.append(f"what would change most, predicted, in pretrain.train: {'; '.join(changes)}")
    return lines
