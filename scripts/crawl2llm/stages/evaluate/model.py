"""Evaluate one model: held-out loss on validation text, tasks and held-out questions by lm-evaluation-harness, generated samples.

Writes `<model>.evaluation.json`, `<model>.items.jsonl` and `<model>.heldout.jsonl`, the results by item and by document, and
`<model>.samples.jsonl`. The model `untrained` has the shape of `base` and random weights; of it there are no samples. Loss is in
nats a token, and in bits per byte, which compares models with different tokenizers. Questions are asked with the template of the
fine-tuning.
What a small corpus does not have (validation text, enough questions) is left out: it is null in the result, and `notes` say why.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, json_lines, pretty, task_of, write_atomically
from crawl2llm.formats import generation_speed
from crawl2llm.formats.public_tasks.measures import QUESTIONS
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.heldout_loss import heldout
from crawl2llm.stages.evaluate.samples import samples
from crawl2llm.stages.evaluate.untrained import untrained
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.heldout import choose
from crawl2llm.training.model_loading import context_of, load, weights
from crawl2llm.training.template import enough, read_pairs


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    harness.offline()
    import torch

    torch.set_num_threads(settings["threads"])
    name = task_of(args.manifest)
    source, folder = weights(args.model)
    rows, template = read_pairs(args.pairs, "heldout")
    documents, available = choose(args.tokens, settings["max_tokens"], settings["seed"])
    has = memory.available()
    random = name == UNTRAINED
    made = untrained(folder, settings["precision"], settings["seed"]) if random else load(folder, settings["precision"])
    model, tokenizer = made
    model = quantized_weights.place(model)
    limit = context_of(model.config)
    context = settings["context"] or limit
    if context > limit:
        raise command_line.InputError(
            f"evaluate.model.context is {context}; the context of the model in {folder} is {limit}"
        )
    if not torch.cuda.is_available():
        advice = ["lower evaluate.model.batch_size", "lower evaluate.model.context"]
        memory.check_loaded(
            "evaluation", model, (args.batch_size, context), has, advice, precision=settings["precision"]
        )

    notes: list[str] = []
    if not enough(args.pairs, "heldout"):
        rows = []
        notes.append("No held-out questions were asked: finetune.pairs found too few.")
    questions, *labelled = multiple_choice.of_questions(rows, template, tokenizer, context)
    if why := questions.why_without_rows(context):
        notes.append(
            f"No held-out questions were asked: {why}; lower finetune.pairs.max_answer_words or raise pretrain.train.model.context."
        )
    items = multiple_choice.of_items(multiple_choice.read_items(args.items), tokenizer, context)
    for task in [*items, *labelled]:
        if why := task.why_without_rows(context):
            notes.append(f"{task.name} was not asked: {why}; raise pretrain.train.model.context.")

    log.info("held-out text: %s of %s documents", f"{len(documents):,}", f"{available:,}")
    text: dict[str, Any] | None = None
    by_document: list[dict[str, Any]] = []
    if documents:
        text, by_document = heldout(
            model, tokenizer.eos_token_id, documents, context, settings["carry"], args.batch_size
        )
        log.info("held-out loss %.4f nats/token, %.4f bits/byte", text["loss"], text["bits_per_byte"])
    else:
        notes.append("No loss was measured on held-out text: the corpus has no validation documents.")
    how = {"context": context, "batch_size": args.batch_size, "seed": settings["seed"]}
    every = [*items, *labelled, questions]
    found, tasks = harness.run(model, tokenizer, every, settings["tasks"], how)
    notes += harness.notes(tasks["results"])
    numbers, lines = multiple_choice.results(every, found.get("samples", {}), settings["seed"])
    for kind, of in numbers.items():
        log.info("%s: accuracy %.3f (chance %.2f)", kind, of["accuracy"], of["chance"])
    answered = numbers.pop(QUESTIONS, None)
    for note in notes:
        log.warning("%s", note)
    shown = (
        []
        if random
        else list(
            samples(
                model,
                tokenizer,
                next((task.rows for task in every[::-1] if task.rows and task not in items), []),
                template,
                settings,
                context,
            )
        )
    )

    if not random:
        generation_speed.write(args.manifest, generation_speed.measure(model, tokenizer.eos_token_id, context))
    result = {
        "model": name,
        "step": source.step,
        "parameters": quantized_weights.parameters(model),
        "heldout_text": text,
        "questions": answered and harness.questions(found, questions, answered),
        "items": numbers,
        "notes": notes,
        "tasks": tasks,
        "template": template.text,
        "software": {"lm_eval": version("lm_eval")},
    }
    files = [args.manifest.with_name(f"{name}.evaluation.json")]
    write_atomically(files[0], pretty(result))
    beside = {"items": lines, "heldout": by_document, **({} if random else {"samples": shown})}
    for kind, written in beside.items():
        files.append(args.manifest.with_name(f"{name}.{kind}.jsonl"))
        write_atomically(files[-1], json_lines(written))
    manifest.counts = {
        "in": available,
        "kept": len(documents),
        "dropped": {"over_max_tokens": available - len(documents)} if available > len(documents) else {},
    }
    manifest.summary = {
        **{k: result[k] for k in ("parameters", "heldout_text", "questions", "items", "tasks", "notes")},
        "samples": shown[:8],
    }
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "evaluate.model",
        __doc__,
        "--config config.yaml --model results/main/finetune/train/sft.manifest.json "
        "--pairs results/main/finetune/pairs/manifest.json --tokens results/main/tokenize/encode/*.manifest.json "
        "--items results/main/evaluate/items/manifest.json "
        "--manifest /tmp/evaluate/sft.manifest.json",
    )
    parser.add_argument("--model", required=True, type=Path, help="manifest of the step that made the model")
    parser.add_argument("--pairs", required=True, type=Path, help="manifest of finetune.pairs")
    parser.add_argument("--tokens", required=True, type=Path, nargs="+", help="manifests of tokenize.encode")
    parser.add_argument("--items", required=True, type=Path, help="manifest of evaluate.items")
    command_line.placement(parser, "evaluate.model")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
