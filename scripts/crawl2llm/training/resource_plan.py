"""Where a planned training runs: the memory of a process by its parts, whether it fits, disk. Nothing here decides a byte.

One definition for the step pretrain.plan, `crawl2llm plan`, the preflight and the table in docs/memory.md.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from math import gcd
from typing import Any

from crawl2llm.core.console import duration, quantity
from crawl2llm.training import auto, checks, cost_estimate, gpus, memory, offload
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.parameters import count

PLACES = {"host": "in the node's memory", "nvme": "on its disk"}  # of what is offloaded
TIGHT = 0.9  # share of a GPU's memory above which a plan says that there is no reserve


def shape_of(summary: dict[str, Any], optimizer: str) -> memory.Shape:
    """What decides the memory, from the summary of pretrain.plan. Of several experts a token's activations are those of its own."""
    model, vocabulary = summary["shape"], summary["shape"]["vocabulary"]
    counted = count(model, vocabulary)
    return memory.Shape(
        parameters=counted.total,
        layers=model["layers"],
        hidden=model["hidden_size"],
        intermediate=counted.feed * counted.chosen,
        vocabulary=vocabulary,
        context=model["context"],
        width=counted.width,
        kv=counted.kv,
        matrices=counted.inside if optimizer == "muon" else 0,
        experts=counted.experts,
        tables=counted.embedding,
    )


def shape_as_built(summary: dict[str, Any], optimizer: str, config: Any, parameters: int) -> memory.Shape:
    """As `shape_of`, with what the model itself says: its parameters, and the widths of attention by its configuration of transformers."""
    width, kv = memory.attention_widths(config)
    return replace(shape_of(summary, optimizer), parameters=parameters, width=width, kv=kv)


def place(
    summary: dict[str, Any],
    train: dict[str, Any],
    own: dict[str, Any],
    profile_gpu: str = "",
    last: dict[str, Any] | None = None,
    has: float | None = None,
) -> dict[str, Any]:
    """What a training with this summary takes where it runs.

    train: pretrain.train with its placement; own: pretrain.plan. has: bytes of memory, in the place of the GPU's or of what this
    machine has free. Raises InputError for a GPU of which nothing is known, and for processes that pretrain.train.parallel does not allow.
    """
    gpu = gpus.chosen(own, train["device"], profile_gpu)
    processes, cuda = train["processes"] * train["nodes"], gpu is not None
    shape = shape_of(summary, train["optimizer"])
    degrees = Degrees.of(train)
    checks.check(train, processes)
    keys = ("micro_batch", "activation_checkpointing", "selective_checkpointing", "async_checkpoints")
    at = {key: train[key] for key in keys} | {
        "processes": processes,
        "parallel": asdict(degrees),
    }
    whole = summary["global_batch_tokens"] // summary["shape"]["context"]
    at["sequences"] = gcd(whole, *(each for _, each in summary.get("batch_ramp", ())))
    at["largest"] = whole
    parts = memory.parts(shape, train, at, cuda)
    here = 1 if cuda else train["processes"]
    has = has or (gpu.memory if gpu else memory.available())
    total = here * sum(parts.values())
    fits, refused = total <= has, total > memory.TOLERANCE * has
    found: dict[str, Any] = {
        "gpu": gpu.name if gpu else None,
        "processes": processes,
        "memory": {**parts, "total": sum(parts.values())},
        "available": has,
        "fits": fits,
        "refused": refused,
        "tight": total > TIGHT * has and not refused,
        "disk": checkpoints(summary, train) * summary["checkpoint_bytes"] + summary["model_bytes"],
        "keep_every": train["keep_every"] if summary["steps"] is None else 0,
    }
    if gpu and offload.is_used(train):
        found["offloaded"] = memory.offloaded(shape, train, at)
    if not fits:
        found["changes"] = memory.changes(shape, train, at, has, here, cuda)
        where = gpus.named(gpu.name) if gpu else memory.HERE
        bound = memory.is_upper_bound(train, at, cuda)
        found["refusal"] = str(memory.refusal("pretrain.train", parts, has, here, found["changes"], where, bound))
        found["largest"] = max(parts, key=lambda name: parts[name])
    return found | cost_estimate.speed(summary, train, own, gpu, last)


def checkpoints(summary: dict[str, Any], train: dict[str, Any]) -> int:
    """The most checkpoints that lie on the disk at once, one that is just written included.

    Those that stay are the newest, those of every n-th step and the best one. Saved are those of every `checkpoint_every` and `keep_every`
    steps, the last and, with `keep_best`, one after each validation. Before the steps are known, every n-th step's are not counted.
    """
    newest, steps = train["keep_checkpoints"] + 1, summary["steps"]
    best, back = train["keep_best"] or bool(train["early_stop"]), 0
    if train["roll_backs"]:  # at most those that a run may go back to, with a best one before each
        back = train["roll_back_every"]
        newest += (train["spike_window"] // back + 2) * (1 + best)
    if steps is None:
        return int(newest + best)
    every = train["keep_every"]
    saved = {steps, *range(train["checkpoint_every"], steps + 1, train["checkpoint_every"])}
    saved |= set(range(every, steps + 1, every)) if every else set()
    saved |= set(range(back, steps + 1, back)) if back else set()
    if best:
        between = summary["auto"].get("validate_every", train["validate_every"])
        between = auto.between(steps) if between == auto.AUTO else between
        saved |= set(range(between, steps + 1, between)) if between else set()
    saved = {step for step in saved if step > summary.get("after_step", 0)}  # those before are another run's
    older = sorted(saved)[:-newest]
    marked = sum(step % every == 0 for step in older) if every else 0
    return min(newest, len(saved)) + marked + (best and marked < len(older))


def short(value: float) -> str:
    """`1.04 B`, `125 M`, `93 k`: a count in three digits."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def size(value: float) -> str:
    """Bytes as `3.2 GB`, `3.2 MB` or `32 kB`."""
    return memory.gigabytes(value)


def listed(parts: dict[str, int]) -> str:
    """The parts of a process's memory in GB, without those that round to nothing: `program 0.6, weights 1.2`."""
    return ", ".join(f"{name} {each / 1e9:.1f}" for name, each in parts.items() if each >= 5e7)


def steps(summary: dict[str, Any]) -> str:
    """`9 steps after step 15`: those that are to be trained."""
    before = summary.get("after_step", 0)
    return f"{summary['steps'] - before:,} steps{f' after step {before:,}' if before else ''}"


def lines(summary: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """The plan for people: what is trained, its memory, how long it takes, its disk; and where it does not fit, why and what to change."""
    sizes, parts = summary["parameters"], dict(found["memory"])
    active = f", {short(sizes['active'])} active" if sizes["active"] != sizes["total"] else ""
    counted = f", counted as {sizes['counted_as']}" if sizes["counted_as"] != "itself" else ""
    head = f"{short(sizes['total'])} parameters ({short(sizes['embedding'])} embeddings{active}{counted})"
    if summary["tokens"]:
        head += (
            f", {short(summary['tokens'])} tokens = {summary['tokens_per_parameter']:,.1f} a parameter (Chinchilla: "
            f"{summary['chinchilla_tokens_per_parameter']}), {steps(summary)}, {summary['flops']['total']:.1e} FLOP"
        )
    total = parts.pop("total")
    on = (
        f"{gpus.named(found['gpu'])} of {found['available'] / 1e9:.0f} GB"
        if found["gpu"]
        else f"{size(found['available'])} free here"
    )
    verdict = (
        "fits" if found["fits"] else "DOES NOT FIT" if found["refused"] else "may not fit, the estimate is not so exact"
    )
    verdict += " with less than a tenth to spare" if found["tight"] and found["fits"] else ""
    out = [
        head,
        f"memory of a process: {size(total)} ({listed(parts)}), {found['processes']} × on {on}: {verdict}",
    ]
    if sizes_beside := [f"{size(each)} {PLACES[kind]}" for kind, each in found.get("offloaded", {}).items() if each]:
        out.append(f"offloaded by each process: {' and '.join(sizes_beside)}")
    if not found["fits"]:
        out.append(f"to make it fit: {', or '.join(found['changes'])}")
    if "hours" in found:
        on = quantity(found["processes"], "GPU") if found["gpu"] else "this machine"
        more = f" = {found['gpu_hours']:,.1f} GPU-hours" if found["gpu"] else ""
        price = f", {found['price']:,.0f} {found['currency']}" if "price" in found else ""
        out.append(f"about {duration(3600 * found['hours'])} on {on}{more}{price}, by {found['basis']}")
    elif "hours_per_billion_tokens" in found:
        out.append(f"{found['hours_per_billion_tokens']:,.2g} hours for a billion tokens, by {found['basis']}")
    else:
        out.append(f"hours are not known: {found['basis']}")
    more = f", and a checkpoint more for every {found['keep_every']:,} steps" if found["keep_every"] else ""
    out.append(
        f"a checkpoint {size(summary['checkpoint_bytes'])}; with the model at most {size(found['disk'])} of disk{more}"
    )
    return out
