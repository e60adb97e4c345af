"""Say before the training what it will take: parameters, tokens, operations, checkpoints; and here: memory, hours and price.

The manifest's summary has what the input alone decides. What the machine and its placement decide is in the log: memory of a process by its
parts, whether it fits, hours, GPU-hours, money; what of it does not change from one moment to the next is in the record, `run.json`, under
`plan`. No model has values: where nothing was measured on the GPU, its speed is predicted from a step that is counted
(training/prediction).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from crawl2llm.chain import command_line, config_schema, placement_options
from crawl2llm.chain.step_program import Program, task_settings
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import AUTO
from crawl2llm.training import auto, cost_estimate, gpus, init_checks, resource_plan, schedule, sizes
from crawl2llm.training.estimate.shape import bytes_of_precision
from crawl2llm.training.measures import flops_per_token
from crawl2llm.training.parameters import ParameterCounts, count_model_parameters
from crawl2llm.training.pretraining_settings import PlanSettings, ResolvedSettings, TrainSettings

TRAIN = "pretrain.train"
# A record is the same whenever the same machine makes the same result: without what is free now, and how fast the last training was.
LASTING = ("gpu", "processes", "memory", "disk")


class UncountedError(InputError):
    """A key is `auto`, and what decides it is known later: after tokenize."""


def training_facts(
    train: TrainSettings, tokens: int | None, vocabulary: int, windows: int | None = None
) -> dict[str, Any]:
    """What a training with these settings of pretrain.train, complete, takes, whatever machine it runs on.

    tokens: of the training split; None before they are counted, when keys that are `auto` raise UncountedError, and a budget in
    epochs gives neither steps nor operations. windows: of an epoch, if documents are packed. Tokens, epochs and operations are those of
    the steps that are left after `start_from`, if that is a checkpoint; `steps` is the number of the last one. Raises InputError if none
    is left. `tokens_per_parameter` is to be compared with the 20 of Hoffmann et al. 2022 (Chinchilla, https://arxiv.org/abs/2203.15556);
    operations are those of training/measures.py.
    """
    resolved, stated, planned, epochs, corpus = cast(ResolvedSettings, train), train, None, None, tokens
    if tokens is None:
        if stated.model.size is not None:
            stated = stated.model_copy(update={"model": sizes.fill_shape(stated.model, vocabulary)})
            resolved = cast(ResolvedSettings, stated)
        if open_names := open_keys(stated):
            raise UncountedError(f"{', '.join(open_names)} are auto: known once tokenize.encode has counted the tokens")
        if (stated.steps, stated.tokens) != (None, None):
            without_epochs = resolved.model_copy(update={"epochs": None})
            planned = schedule.make_plan(without_epochs, 2 + resolved.model.context)
    else:
        resolved = auto.resolve(stated, tokens, vocabulary)
        planned = schedule.make_plan(resolved, tokens, windows)
        epochs = planned.epochs
    model, counts = resolved.model, count_model_parameters(resolved.model, vocabulary)
    token_flops = flops_per_token(counts.multiplied, model.layers, counts.width, model.context)
    steps, trained, first_step = (planned.steps if planned else None), None, init_checks.start_step(resolved)
    if planned:
        init_checks.check_steps_left(resolved.start_from or "", first_step, planned.steps)
        trained = planned.tokens_until(planned.steps) - planned.tokens_until(first_step)
        epochs = trained / planned.context / planned.windows if epochs is not None else None
    return {
        "parameters": {
            "total": counts.total,
            "active": counts.active,
            "embedding": counts.embedding,
            "counted_as": "itself" if counts.exact else "a Llama of this shape",
        },
        "shape": {
            **config_schema.prune_settings(TRAIN, resolved.model_dump(by_alias=True))["model"],
            "vocabulary": vocabulary,
        },
        "auto": auto.resolved_values(stated, resolved),
        "corpus_tokens": corpus,
        "tokens": trained,
        "steps": steps,
        **({"after_step": first_step} if first_step else {}),
        "epochs": epochs,
        "global_batch_tokens": resolved.global_batch_tokens,
        **({"batch_ramp": planned.stages} if planned and planned.stages else {}),  # steps before, sequences of a step
        "tokens_per_parameter": trained and round(trained / counts.total, 2),
        "chinchilla_tokens_per_parameter": auto.TOKENS_A_PARAMETER,
        "flops": {"per_token": token_flops, "total": trained and token_flops * trained},
        "model_bytes": bytes_of_precision(resolved.save_dtype) * counts.total,
        "checkpoint_bytes": checkpoint_bytes(resolved, counts),
    }


def packing_totals(packs: list[Path], context: int) -> dict[str, int]:
    """What best fit made of the documents, which is logged, too; {} if they are not packed. packs: the manifest, if there is one."""
    from crawl2llm.training import packed_windows  # numpy: what a command imports of this module needs none

    if totals := packed_windows.read_totals(packs, context):
        log.info("%s", packed_windows.totals_text(totals))
    return totals


def checkpoint_bytes(train: TrainSettings, counts: ParameterCounts) -> int:
    """Bytes of the weights and moments in a checkpoint, of all processes; names and headers beside them are not counted.

    AdamW has two moments of fp32, Muon one of its matrices. The engine torch and DeepSpeed's ZeRO 3 write fp32 weights alone; DeepSpeed's
    other stages those that it computes with, and fp32 ones beside them but for fp32 without ZeRO.
    """
    moments = 8 * counts.total - (4 * counts.non_embedding if train.optimizer == "muon" else 0)
    moments += 4 * counts.total if train.ema else 0  # their mean
    if train.engine == "torch" or train.zero_stage == 3:
        return 4 * counts.total + moments
    has_fp32_copy = train.zero_stage or train.precision != "fp32"
    return bytes_of_precision(train.precision) * counts.total + moments + (4 * counts.total if has_fp32_copy else 0)


def open_keys(train: TrainSettings) -> list[str]:
    """The keys that the corpus decides, if they are `auto` and a plan needs them."""
    keys = [f"model.{key}" for key, value in train.model if value == AUTO]
    keys += ["global_batch_tokens"] if train.global_batch_tokens == AUTO else []
    budget = train.steps is not None or train.tokens is not None
    return keys + (["epochs"] if train.epochs == AUTO and not budget else [])


class Task(PlanSettings):
    """What the program is given. train: of pretrain.train, whose placement keys are options of this program."""

    train: dict[str, Any]


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    """Write what the training takes into the manifest's summary, its record and the log; there are no files."""
    shards = [Manifest.read(path) for path in args.tokens]
    train = task_settings(TrainSettings, args, settings.train, TRAIN)
    tokens = sum(shard.summary["train"]["tokens"] for shard in shards)
    vocabulary, packed = Manifest.read(args.tokenizer).summary["vocabulary"], {}
    if args.packs:
        packed = packing_totals(args.packs, auto.resolve(train, tokens, vocabulary).model.context)
    summary = training_facts(train, tokens, vocabulary, packed.get("windows"))
    if packed:
        summary["packing"] = packed
    last = cost_estimate.read_last_training(args.manifest.parents[1] / "train")
    manifest.summary = summary
    plan_resources = partial(
        resource_plan.plan_resources, summary, plan_settings=settings, profile_gpu=args.profile_gpu, last=last
    )
    try:
        resources = plan_resources(train=train)
    except InputError as error:
        if settings.gpu:  # a name that a person wrote
            raise
        manifest.run["plan"] = {"unknown": str(error)}
        log.warning("memory and hours are not known: %s", error)
        return []
    if predicted := predict_speed(
        summary, train, settings, args.profile_gpu, resources, lambda each: plan_resources(train=each)["fits"]
    ):
        resources = plan_resources(train=train, predicted=predicted) | {"predicted": predicted}
    manifest.run["plan"] = resources if resources["gpu"] and not last else {key: resources[key] for key in LASTING}
    for line in resource_plan.plan_lines(summary, resources):
        log.info("%s", line)
    if not resources["fits"]:
        log.warning("%s", resources["refusal"])
    return []


def predict_speed(
    summary: dict[str, Any], train: TrainSettings, plan_settings: PlanSettings, profile_gpu: str, resources: dict[str, Any],
    fits: Callable[[TrainSettings], bool],
) -> dict[str, Any] | None:  # fmt: skip
    """What prediction/predict.py says of a training on a GPU whose speed is assumed so far; None where it cannot say.

    It takes seconds, and torch. resources: as `resource_plan.plan_resources`. Raises InputError for pretrain.plan.gpu_check.
    """
    gpu = gpus.training_gpu(plan_settings, train.device, profile_gpu)
    if gpu is None or resources["refused"] or resources.get("source") != "assumed":
        return None
    try:
        from crawl2llm.training.prediction import predict

        return predict.predict_training(summary, train, plan_settings, gpu, fits)
    except InputError as error:
        if predict.KEY in str(error):
            raise
        why = str(error)
    except Exception as error:  # not every architecture runs without values, and a plan must not end for it
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    log.info("the speed is assumed, and not predicted: %s", why)
    return None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add where the training is to run."""
    parser.add_argument("--profile-gpu", default="", help="the GPU that the profile asks SLURM for, such as h100")
    command_line.add_placement_options(parser, TRAIN)
    command_line.add_placement_options(parser, TRAIN, placement_options.LAUNCHER)


main = Program("pretrain.plan", __doc__, Task, body, add_options, example="--gpu h100 --processes 8")


if __name__ == "__main__":
    raise SystemExit(main())
