"""Ask one model the public tasks: lm-evaluation-harness's own definitions and metrics, and CORE's, over the data that evaluate.stage left.

Writes `<model>.public.json`, the numbers by task, and `<model>.items.jsonl`, the result of each item. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, json_lines, pretty, task_of, write_atomically
from crawl2llm.formats.public_tasks import core
from crawl2llm.formats.public_tasks.presets import PRESETS, definitions
from crawl2llm.stages.evaluate import harness, scores
from crawl2llm.stages.evaluate.scores import Outcome
from crawl2llm.stages.evaluate.truncation import Bounded, Place
from crawl2llm.stages.evaluate.untrained import untrained
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.model_loading import context_of, load, weights

CORE = "core"
Row = dict[str, Any]


def staged(manifest: Manifest, name: str) -> list[Row]:
    """The rows of a file of evaluate.stage; none of a file that it did not write. Raises ManifestError for a damaged one."""
    return manifest.rows(name) if name in manifest.files else []


def definition(name: str, part: str, rows: list[Row], shots: list[Row], written: int) -> dict[str, Any]:
    """The harness's definition of a preset (or a part of it), over `rows`, with examples from `shots`; all else is as it stands there."""
    from lm_eval.tasks._yaml_loader import load_yaml

    preset = PRESETS[name]
    found = load_yaml(definitions() / preset.definition.format(part))

    def dataset(**_: Any) -> Any:
        from datasets import Dataset

        return {"items": Dataset.from_list(rows), **({"shots": Dataset.from_list(shots)} if shots else {})}

    for key in ("dataset_path", "dataset_name", "training_split", "validation_split", "tag", "metadata", "task_alias"):
        found.pop(key, None)
    own = {"test_split": "items", "custom_dataset": dataset, "num_fewshot": preset.shots}
    if shots:
        own["fewshot_split"] = "shots"
    if found["output_type"] == "generate_until":
        own["generation_kwargs"] = {**found.get("generation_kwargs", {}), "max_gen_toks": written}
    return {**found, **own}


def of_preset(
    lm: Any, bounded: Bounded, name: str, stage: Manifest, seed: int
) -> Iterator[tuple[str, Row, Place, Row]]:
    """(part, item, its place in lm-eval's task, lm-eval's sample) of every item of a preset."""
    items, shots = staged(stage, f"{name}.jsonl"), staged(stage, f"{name}.shots.jsonl")
    parts = dict.fromkeys(item["part"] for item in items)
    of = {part: [item for item in items if item["part"] == part] for part in parts}
    tasks = [
        definition(
            name,
            part,
            [item["row"] for item in of[part]],
            [shot["row"] for shot in shots if shot["part"] == part],
            bounded.written,
        )
        for part in parts
    ]
    strainer = PRESETS[name].headline.partition(",")[2] or "none"
    samples = harness.evaluated(lm, tasks, seed)["samples"]
    for part, task in zip(parts, tasks, strict=True):
        for sample in samples[task["task"]]:
            if sample["filter"] == strainer:
                yield part, of[part][sample["doc_id"]], (task["task"], sample["doc_id"]), sample


def outcome(name: str, part: str, item: Row, place: Place, sample: Row, bounded: Bounded) -> Outcome:
    """What a model reached on one item, from lm-eval's sample."""
    metric = PRESETS[name].headline.partition(",")[0]
    answers = sample["filtered_resps"]
    found: Row = {"part": part} if part else {}
    if isinstance(answers[0], str):
        chance, found["answer"] = 0.0, answers[0]
    else:
        nats = [float(answer[0]) for answer in answers]
        scores.finite(name, item["id"], nats)
        chance, found["log_likelihoods"] = (1 / len(nats) if len(nats) > 1 else 0.0), nats
    also: dict[str, float] = {key: float(sample[key]) for key in ("acc", "acc_norm") if key in sample}
    return Outcome(
        item["id"],
        bool(sample[metric]),
        chance,
        found,
        also,
        cut=any(bounded.is_cut(place, arguments[0], answers[0]) for arguments in sample["arguments"]),
        left_out=place in bounded.left_out,
    )


def of_core(lm: Any, tokenizer: Any, name: str, items: list[Row]) -> list[Outcome]:
    """What a model reaches on the items of a task of CORE."""
    task, most = core.TASKS[name], int(lm.max_length)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    pairs = [core.scored(task, item["row"], item["before"], encode, tokenizer.eos_token_id) for item in items]
    fits = [all(0 < len(tokens) <= most for _, tokens in of) for of in pairs]
    requests = [((str(at), ""), *pair) for at, of in enumerate(pairs) if fits[at] for pair in of]
    lm.progress = Progress(len(requests), f"answers scored of {CORE}.{name}")
    answers = iter(lm._loglikelihood_tokens(requests, disable_tqdm=True))
    found = []
    for item, of, fit in zip(items, pairs, fits, strict=True):
        told = [next(answers) for _ in of] if fit else []
        nats, sizes = [float(value) for value, _ in told], [len(tokens) for _, tokens in of]
        scores.finite(f"{CORE}.{name}", item["id"], nats)
        result = (
            core.judged(task, item["row"], nats, [bool(right) for _, right in told], sizes) if fit else {"right": False}
        )
        long = any(len(given) + len(tokens) > most + 1 for given, tokens in of)
        found.append(
            Outcome(
                item["id"],
                result["right"],
                task.chance,
                {**result, "log_likelihoods": nats},
                cut=long,
                left_out=not fit,
            )
        )
    return found


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    harness.offline()
    import torch

    torch.set_num_threads(settings["threads"])
    name, stage = task_of(args.manifest), Manifest.read(args.staged)
    _, folder = weights(args.model)
    has = memory.available()
    if name == UNTRAINED:
        model, tokenizer = untrained(folder, settings["precision"], settings["seed"])
    else:
        model, tokenizer = load(folder, settings["precision"])
    quantized_weights.place(model)
    context = context_of(model.config)
    if not torch.cuda.is_available():
        shape, advice = (settings["batch_size"], context), ["lower evaluate.public.batch_size"]
        memory.check_loaded("evaluation", model, shape, has, advice, precision=settings["precision"])
    lm = harness.language_model(model, tokenizer, context, settings["batch_size"])
    bounded = Bounded(lm)
    results: dict[str, Row] = {}
    lines: list[Row] = []

    def told(task: str, outcomes: list[Outcome]) -> None:
        results[task], more = scores.measured(task, outcomes, settings["seed"])
        lines.extend(more)
        if results[task]["accuracy"] is not None:
            log.info("%s: accuracy %.3f (chance %.2f)", task, results[task]["accuracy"], results[task]["chance"])

    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("HF_DATASETS_CACHE", cache)
        for preset in stage.summary["presets"]:
            if preset != CORE:
                log.info("lm-evaluation-harness: %s", preset)
                asked = of_preset(lm, bounded, preset, stage, settings["seed"])
                told(preset, [outcome(preset, *found, bounded) for found in asked])
    lm._loglikelihood_tokens = bounded.inner
    of_all = stage.summary["presets"].get(CORE)
    for task in of_all["tasks"] if of_all else ():
        told(f"{CORE}.{task}", of_core(lm, tokenizer, task, staged(stage, f"{CORE}.{task}.jsonl")))
    result = {
        "model": name,
        "tasks": {task: {**of, **about(stage, task)} for task, of in results.items()},
        CORE: of_all and scores.core(results, list(core.TASKS), of_all["missing"]),
        "context": context,
        "software": {"lm_eval": version("lm_eval")},
    }
    files = [args.manifest.with_name(f"{name}.public.json"), args.manifest.with_name(f"{name}.items.jsonl")]
    write_atomically(files[0], pretty(result))
    write_atomically(files[1], json_lines(lines))
    left = sum(of["left_out_too_long"] for of in results.values())
    manifest.counts = {"in": len(lines) + left, "kept": len(lines), "dropped": {"too_long": left} if left else {}}
    manifest.summary = {key: result[key] for key in ("tasks", CORE)}
    return files


def about(stage: Manifest, task: str) -> Row:
    """What is known of a task's data: the file it is from, how many rows that has, and how many examples stand before an item."""
    group, _, name = task.partition(".")
    found = stage.summary["presets"][group]
    of = found["tasks"][name] if name else found
    return {key: of[key] for key in ("from", "rows", "shots")}


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "evaluate.public",
        __doc__,
        "--config config.yaml --model results/main/finetune/train/sft.manifest.json "
        "--staged results/main/evaluate/stage/manifest.json --manifest /tmp/public/sft.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the step that made the model")
    parser.add_argument("--staged", required=True, type=Path, help="manifest of evaluate.stage")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
