"""Say before the training what it will take: parameters, tokens, operations, checkpoints; and here: memory, hours and price.

The manifest's summary has what the input alone decides. What the machine and its placement decide is in the log: memory of a process by its
parts, whether it fits, hours, GPU-hours, money; what of it does not change from one moment to the next is in the record, `run.json`, under
`plan`. No model is built.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, config_schema, placement_options
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import auto, cost_estimate, init_checks, resource_plan, schedule, sizes
from crawl2llm.training.measures import flops_per_token
from crawl2llm.training.parameters import Counted, count

TRAIN = "pretrain.train"
# A record is the same whenever the same machine makes the same result: without what is free now, and how fast the last training was.
LASTING = ("gpu", "processes", "memory", "disk")
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def facts(train: dict[str, Any], tokens: int | None, vocabulary: int) -> dict[str, Any]:
    """What a training with these settings of pretrain.train, complete, takes, whatever machine it runs on.

    tokens: of the training split; None before they are counted, when keys that are `auto` raise InputError, and a budget in
    epochs gives neither steps nor operations. Tokens, epochs and operations are those of the steps that are left after `start_from`,
    where that is a checkpoint; `steps` is the number of the last one. Raises InputError where none is left. `tokens_per_parameter` is to
    be compared with the 20 of Hoffmann et al. 2022 (Chinchilla, https://arxiv.org/abs/2203.15556); operations are those of
    training/measures.py.
    """
    made, given, planned, epochs, corpus = train, train, None, None, tokens
    if tokens is None:
        if given["model"]["size"] is not None:
            made = given = {**given, "model": sizes.fill(given["model"], vocabulary)}
        if left := open_keys(given):
            raise InputError(f"{', '.join(left)} are auto: known once tokenize.encode has counted the tokens")
        if (given["steps"], given["tokens"]) != (None, None):
            planned = schedule.plan({**given, "epochs": None}, 2 + given["model"]["context"])
    else:
        made = auto.resolve(given, tokens, vocabulary)
        planned = schedule.plan(made, tokens)
        epochs = planned.epochs
    model, counted = made["model"], count(made["model"], vocabulary)
    each = flops_per_token(counted.multiplied, model["layers"], counted.width, model["context"])
    steps, trained, before = (planned.steps if planned else None), None, init_checks.begun(made)
    if planned:
        init_checks.check_left(made["start_from"], before, planned.steps)
        trained = planned.tokens(planned.steps) - planned.tokens(before)
        epochs = trained / planned.context / planned.windows if epochs is not None else None
    return {
        "parameters": {
            "total": counted.total,
            "active": counted.active,
            "embedding": counted.embedding,
            "counted_as": "itself" if counted.exact else "a Llama of this shape",
        },
        "shape": {**config_schema.pruned(TRAIN, made)["model"], "vocabulary": vocabulary},
        "auto": auto.resolved(given, made),
        "corpus_tokens": corpus,
        "tokens": trained,
        "steps": steps,
        **({"after_step": before} if before else {}),
        "epochs": epochs,
        "global_batch_tokens": made["global_batch_tokens"],
        **({"batch_ramp": planned.stages} if planned and planned.stages else {}),  # steps before, sequences of a step
        "tokens_per_parameter": trained and round(trained / counted.total, 2),
        "chinchilla_tokens_per_parameter": auto.TOKENS_A_PARAMETER,
        "flops": {"per_token": each, "total": trained and each * trained},
        "model_bytes": BYTES[made["save_dtype"]] * counted.total,
        "checkpoint_bytes": checkpoint_bytes(made, counted),
    }


def checkpoint_bytes(train: dict[str, Any], counted: Counted) -> int:
    """Bytes of the weights and moments in a checkpoint, of all processes; names and headers beside them are not counted.

    AdamW has two moments of fp32, Muon one of its matrices. The engine torch and DeepSpeed's ZeRO 3 write fp32 weights alone; DeepSpeed's
    other stages those that it computes with, and fp32 ones beside them but for fp32 without ZeRO.
    """
    moments = 8 * counted.total - (4 * counted.inside if train["optimizer"] == "muon" else 0)
    moments += 4 * counted.total if train["ema"] else 0  # their mean
    if train["engine"] == "torch" or train["zero_stage"] == 3:
        return 4 * counted.total + moments
    beside = train["zero_stage"] or train["precision"] != "fp32"
    return BYTES[train["precision"]] * counted.total + moments + (4 * counted.total if beside else 0)


def open_keys(train: dict[str, Any]) -> list[str]:
    """The keys that the corpus decides, where they are `auto` and a plan needs them."""
    model = train["model"]
    found = [f"model.{key}" for key, value in model.items() if value == auto.AUTO]
    found += [key for key in ("global_batch_tokens",) if train[key] == auto.AUTO]
    budget = train["steps"] is not None or train["tokens"] is not None
    return found + (["epochs"] if train["epochs"] == auto.AUTO and not budget else [])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    """Write what the training takes into the manifest's summary, its record and the log; there are no files."""
    train, shards = config_schema.completed(TRAIN, settings["train"]), [Manifest.read(path) for path in args.tokens]
    tokens = sum(shard.summary["train"]["tokens"] for shard in shards)
    summary = facts(train, tokens, Manifest.read(args.tokenizer).summary["vocabulary"])
    placement = placement_options.given(args, TRAIN) | placement_options.given(args, TRAIN, placement_options.LAUNCHER)
    own = {key: getattr(args, key) for key in placement_options.of(args.step)}
    last = cost_estimate.measured(args.manifest.parents[1] / "train")
    manifest.summary = summary
    try:
        found = resource_plan.place(summary, {**train, **placement}, own, args.profile_gpu, last)
    except InputError as error:
        if args.gpu:  # a name that a person wrote
            raise
        manifest.run["plan"] = {"unknown": str(error)}
        log.warning("memory and hours are not known: %s", error)
        return []
    manifest.run["plan"] = found if found["gpu"] and not last else {key: found[key] for key in LASTING}
    for line in resource_plan.lines(summary, found):
        log.info("%s", line)
    if not found["fits"]:
        log.warning("%s", found["refusal"])
    return []


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "pretrain.plan",
        __doc__,
        "--config config.yaml --tokens results/main/tokenize/encode/*.manifest.json "
        "--tokenizer results/main/tokenize/train/manifest.json --gpu h100 --processes 8 --manifest /tmp/plan/manifest.json",
    )
    parser.add_argument("--tokens", required=True, type=Path, nargs="+", help="manifests of tokenize.encode")
    parser.add_argument("--tokenizer", required=True, type=Path, help="manifest of tokenize.train")
    parser.add_argument("--profile-gpu", default="", help="the GPU that the profile asks SLURM for, such as h100")
    command_line.placement(parser, "pretrain.plan")
    command_line.placement(parser, TRAIN)
    command_line.placement(parser, TRAIN, placement_options.LAUNCHER)
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
