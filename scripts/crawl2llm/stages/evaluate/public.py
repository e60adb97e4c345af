"""Ask one model the public tasks: lm-evaluation-harness's own definitions and metrics, and CORE's, over the data that evaluate.stage left.

Writes `<model>.public.json`, the numbers by task, and `<model>.items.jsonl`, the result of each item. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.chain.step_program import Program
from crawl2llm.core import free_memory
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.public_tasks import core
from crawl2llm.formats.public_tasks.presets import PASS, PRESETS, code_presets, definitions_folder
from crawl2llm.stages.evaluate import code_answers, harness, scores
from crawl2llm.stages.evaluate.result_files import write_model_files
from crawl2llm.stages.evaluate.sandbox import check_sandbox
from crawl2llm.stages.evaluate.scores import BITS_PER_BYTE, Outcome
from crawl2llm.stages.evaluate.settings import PublicSettings
from crawl2llm.stages.evaluate.truncation import BoundedScorer, Place
from crawl2llm.stages.evaluate.untrained import untrained_model
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.measures import bits_per_byte
from crawl2llm.training.model_loading import context_of, load_model, verify_weights

CORE = "core"
ANSWER_TOKENS = 256  # of lm-eval, where a definition says nothing
Row = dict[str, Any]


def staged_rows(manifest: Manifest, name: str) -> list[Row]:
    """The rows of a file of evaluate.stage; none of a file that it did not write. Raises ManifestError for a damaged one."""
    return manifest.rows(name) if name in manifest.files else []


def task_definition(
    name: str, part: str, rows: list[Row], shots: list[Row], answer_tokens: Callable[[int], int]
) -> dict[str, Any]:
    """The harness's definition of a preset (or a part of it), over `rows`, with examples from `shots`; all else is as it stands there.

    answer_tokens: how many tokens an answer may have of those that the definition wants. Where answers are programs the harness runs none.
    """
    from lm_eval.tasks._yaml_loader import load_yaml

    preset = PRESETS[name]
    fields = load_yaml(definitions_folder() / preset.definition.format(part), resolve_func=not preset.runs_code)

    def build_dataset(**_: Any) -> Any:
        from datasets import Dataset

        return {"items": Dataset.from_list(rows), **({"shots": Dataset.from_list(shots)} if shots else {})}

    for key in ("dataset_path", "dataset_name", "training_split", "validation_split", "tag", "metadata", "task_alias"):
        fields.pop(key, None)
    overrides = {"test_split": "items", "custom_dataset": build_dataset, "num_fewshot": preset.shots}
    fields.pop("fewshot_split", None)  # the harness looks for it, also for no examples
    if shots:
        overrides["fewshot_split"] = "shots"
    if fields["output_type"] == "generate_until":
        options = fields.get("generation_kwargs", {})
        most = answer_tokens(options.get("max_gen_toks", ANSWER_TOKENS))
        overrides["generation_kwargs"] = {**options, "max_gen_toks": most}
    if preset.runs_code:
        overrides |= {"unsafe_code": False, "filter_list": None, "metric_list": [{"metric": "bypass"}]}
    return {**fields, **overrides}


def preset_samples(
    lm: Any, bounded: BoundedScorer, name: str, stage: Manifest, seed: int
) -> Iterator[tuple[str, Row, Place, Row]]:
    """(part, item, its place in lm-eval's task, lm-eval's sample) of every item of a preset."""
    items, shots = staged_rows(stage, f"{name}.jsonl"), staged_rows(stage, f"{name}.shots.jsonl")
    parts = dict.fromkeys(item["part"] for item in items)
    items_by_part = {part: [item for item in items if item["part"] == part] for part in parts}
    tasks = [
        task_definition(
            name,
            part,
            [item["row"] for item in items_by_part[part]],
            [shot["row"] for shot in shots if shot["part"] == part],
            bounded.answer_tokens,
        )
        for part in parts
    ]
    strainer = PRESETS[name].headline.partition(",")[2] or "none"
    samples = harness.evaluate_tasks(lm, tasks, seed)["samples"]
    for part, task in zip(parts, tasks, strict=True):
        for sample in samples[task["task"]]:
            if sample["filter"] == strainer:
                yield part, items_by_part[part][sample["doc_id"]], (task["task"], sample["doc_id"]), sample


def item_outcome(name: str, part: str, item: Row, place: Place, sample: Row, bounded: BoundedScorer) -> Outcome:
    """What a model reached on one item, from lm-eval's sample."""
    metric = PRESETS[name].headline.partition(",")[0]
    answers = sample["filtered_resps"]
    line: Row = {"part": part} if part else {}
    if isinstance(answers[0], str):
        chance, line["answer"] = 0.0, answers[0]
        line |= {"failed": sample["failed"]} if "failed" in sample else {}
    else:
        nats = [float(answer[0]) for answer in answers]
        scores.check_finite(name, item["id"], nats)
        chance, line["log_likelihoods"] = (1 / len(nats) if len(nats) > 1 else 0.0), nats
    other_metrics: dict[str, float] = {key: float(sample[key]) for key in ("acc", "acc_norm") if key in sample}
    if "log_likelihoods" in line:
        other_metrics[BITS_PER_BYTE] = line[BITS_PER_BYTE] = right_answer_bits(sample, line["log_likelihoods"])
    return Outcome(
        item["id"],
        bool(sample[metric]),
        chance,
        line,
        other_metrics,
        cut=any(bounded.is_cut(place, *arguments) for arguments in sample["arguments"]),
        left_out=place in bounded.left_out_places,
    )


def judge_samples(
    name: str, samples: Sequence[tuple[str, Row, Place, Row]], bounded: BoundedScorer, threads: int
) -> list[Outcome]:
    """What a model reached on each item of a preset. threads: programs that run at once, where answers are some.

    The sample of a program gets the verdict of its tests: the metric, and `failed`, the name of what did.
    """
    if not PRESETS[name].runs_code:
        return [item_outcome(name, *sample, bounded) for sample in samples]
    programs = [
        (item["row"], code_answers.program_of(item["row"], sample["filtered_resps"][0], name.endswith("_instruct")))
        for _, item, _, sample in samples
    ]
    verdicts = code_answers.judge_programs(name, programs, threads)
    return [
        item_outcome(name, part, item, place, {**sample, PASS: verdict["right"], "failed": verdict["error"]}, bounded)
        for (part, item, place, sample), verdict in zip(samples, verdicts, strict=True)
    ]


def right_answer_bits(sample: Row, nats: list[float]) -> float:
    """Bits for each byte of the right answer, with the delimiter before it, from lm-eval's sample and the log-likelihood of each choice.

    OLMo 3 asks small models so; likelihoods of right answers tell data apart where accuracy does not yet (DataDecide, arXiv:2504.11393).
    """
    answers, target = [str(arguments[1]) for arguments in sample["arguments"]], sample["target"]
    if len(answers) == 1:
        right = 0
    elif isinstance(target, int):
        right = target
    elif len(set(answers)) == 1:  # WinoGrande: the choices are what stands before
        right = int(sample["doc"]["answer"]) - 1
    else:
        right = [answer.strip() for answer in answers].index(target.strip())
    return bits_per_byte(-nats[right], len(answers[right].encode()))


def core_outcomes(lm: Any, tokenizer: Any, name: str, items: list[Row]) -> list[Outcome]:
    """What a model reaches on the items of a task of CORE."""
    task, max_length = core.TASKS[name], int(lm.max_length)

    def encode_text(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    pairs = [
        core.tokens_to_score(task, item["row"], item["before"], encode_text, tokenizer.eos_token_id) for item in items
    ]
    fits = [all(0 < len(tokens) <= max_length for _, tokens in item_pairs) for item_pairs in pairs]
    requests = [((str(at), ""), *pair) for at, of in enumerate(pairs) if fits[at] for pair in of]
    lm.progress = Progress(len(requests), f"answers scored of {CORE}.{name}")
    answers = iter(lm._loglikelihood_tokens(requests, disable_tqdm=True))
    outcomes = []
    for item, of, fit in zip(items, pairs, fits, strict=True):
        item_answers = [next(answers) for _ in of] if fit else []
        nats, sizes = [float(value) for value, _ in item_answers], [len(tokens) for _, tokens in of]
        scores.check_finite(f"{CORE}.{name}", item["id"], nats)
        result = (
            core.judge_item(task, item["row"], nats, [bool(right) for _, right in item_answers], sizes)
            if fit
            else {"right": False}
        )
        is_cut = any(len(context_tokens) + len(tokens) > max_length + 1 for context_tokens, tokens in of)
        outcomes.append(
            Outcome(
                item["id"],
                result["right"],
                task.chance,
                {**result, "log_likelihoods": nats},
                cut=is_cut,
                left_out=not fit,
            )
        )
    return outcomes


def body(args: argparse.Namespace, settings: PublicSettings, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    torch.set_num_threads(settings.threads)
    name, stage = task_of(args.manifest), Manifest.read(args.staged)
    check_sandbox(code_presets(stage.summary["presets"]))
    _, folder = verify_weights(args.model)
    memory_before = free_memory.available_bytes()
    if name == UNTRAINED:
        model, tokenizer = untrained_model(folder, settings.precision, settings.seed)
    else:
        model, tokenizer = load_model(folder, settings.precision)
    # As everywhere: what an item spells is text, and the prompts have no chat template.
    tokenizer.split_special_tokens = True
    quantized_weights.place_model(model)
    context = context_of(model.config)
    if not torch.cuda.is_available():
        shape, advice = (settings.batch_size, context), ["lower evaluate.public.batch_size"]
        memory.check_loaded("evaluation", model, shape, memory_before, advice, precision=settings.precision)
    lm = harness.language_model(model, tokenizer, context, settings.batch_size)
    bounded = BoundedScorer(lm)
    results: dict[str, Row] = {}
    lines: list[Row] = []

    def record_outcomes(task: str, outcomes: list[Outcome]) -> None:
        results[task], item_lines = scores.measure_task(task, outcomes, settings.seed)
        lines.extend(item_lines)
        if results[task]["accuracy"] is not None:
            log.info("%s: accuracy %.3f (chance %.2f)", task, results[task]["accuracy"], results[task]["chance"])

    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("HF_DATASETS_CACHE", cache)
        for preset in stage.summary["presets"]:
            if preset != CORE:
                log.info("lm-evaluation-harness: %s", preset)
                samples = list(preset_samples(lm, bounded, preset, stage, settings.seed))
                record_outcomes(preset, judge_samples(preset, samples, bounded, settings.threads))
    lm._loglikelihood_tokens = bounded.inner
    core_summary = stage.summary["presets"].get(CORE)
    for task in core_summary["tasks"] if core_summary else ():
        record_outcomes(
            f"{CORE}.{task}", core_outcomes(lm, tokenizer, task, staged_rows(stage, f"{CORE}.{task}.jsonl"))
        )
    result = {
        "model": name,
        "tasks": {task: {**numbers, **data_origin(stage, task)} for task, numbers in results.items()},
        CORE: core_summary and scores.core_score(results, list(core.TASKS), core_summary["missing"]),
        "context": context,
        "software": {"lm_eval": version("lm_eval")},
    }
    left_out = sum(of["left_out_too_long"] for of in results.values())
    manifest.counts = {
        "in": len(lines) + left_out,
        "kept": len(lines),
        "dropped": {"too_long": left_out} if left_out else {},
    }
    manifest.summary = {key: result[key] for key in ("tasks", CORE)}
    return write_model_files(args.manifest, "public", result, {"items": lines})


def data_origin(stage: Manifest, task: str) -> Row:
    """What is known of a task's data: the file it is from, how many rows that has, and how many examples stand before an item."""
    group, _, name = task.partition(".")
    preset = stage.summary["presets"][group]
    facts = preset["tasks"][name] if name else preset
    return {key: facts[key] for key in ("from", "rows", "shots")}


main = Program("evaluate.public", __doc__, PublicSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
