"""Evaluate one model: held-out loss on validation text, tasks and held-out questions by lm-evaluation-harness, generated samples.

Writes `<model>.evaluation.json`, `<model>.items.jsonl` and `<model>.heldout.jsonl`, the results by item and by document, and
`<model>.samples.jsonl`. The model `untrained` has the shape of `base` and random weights; of it there are no samples. Loss is in
nats a token, and in bits per byte, which compares models with different tokenizers: which documents are scored is decided by the run's
own tokens, whatever the model's; `set` in the summary is a digest of them. Questions are asked with the template of the
fine-tuning.
What a small corpus does not have (validation text, enough questions) is left out: it is null in the result, and `notes` say why.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.chain.step_program import Program
from crawl2llm.core import free_memory
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats import generation_speed
from crawl2llm.formats.public_tasks.measures import QUESTIONS
from crawl2llm.stages.evaluate import harness, multiple_choice
from crawl2llm.stages.evaluate.documents import documents_digest, find_in_tokens
from crawl2llm.stages.evaluate.heldout_loss import first_token, measure_heldout
from crawl2llm.stages.evaluate.result_files import write_model_files
from crawl2llm.stages.evaluate.samples import sample_rows
from crawl2llm.stages.evaluate.settings import ModelSettings
from crawl2llm.stages.evaluate.untrained import untrained_model
from crawl2llm.training import memory, quantized_weights
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.heldout import choose_documents
from crawl2llm.training.model_loading import context_of, load_model, verify_weights
from crawl2llm.training.template import Template, has_enough_pairs, read_pairs

Tasks = list[multiple_choice.Task]
Row = dict[str, Any]


def load_for_evaluation(folder: Path, settings: ModelSettings, untrained: bool) -> tuple[Any, Any, int]:
    """(model on its device, tokenizer, context in tokens to evaluate it in). untrained: with random weights.

    Raises InputError where the model has not that context, and where this machine clearly has too little memory.
    """
    import torch

    memory_before = free_memory.available_bytes()
    model, tokenizer = (
        untrained_model(folder, settings.precision, settings.seed)
        if untrained
        else load_model(folder, settings.precision)
    )
    model = quantized_weights.place_model(model)
    limit = context_of(model.config)
    context = settings.context or limit
    if context > limit:
        raise InputError(f"evaluate.model.context is {context}; the context of the model in {folder} is {limit}")
    if not torch.cuda.is_available():
        batch = settings.batch_size, context
        advice = ["lower evaluate.model.batch_size", "lower evaluate.model.context"]
        memory.check_loaded("evaluation", model, batch, memory_before, advice, precision=settings.precision)
    return model, tokenizer, context


def choose_tasks(
    args: argparse.Namespace, rows: list[Row], template: Template, tokenizer: Any, context: int
) -> tuple[Tasks, Tasks, list[str]]:
    """(tasks of items, tasks of held-out pairs, why some are not asked); the questions are the last task of pairs.

    rows: held-out pairs. template: how the model is asked. context: of the model, in tokens.
    """
    notes = []
    if not has_enough_pairs(args.pairs, "heldout"):
        rows = []
        notes.append("No held-out questions were asked: finetune.pairs found too few.")
    questions, *labelled = multiple_choice.question_tasks(rows, template, tokenizer, context)
    if reason := questions.why_without_rows(context):
        notes.append(
            f"No held-out questions were asked: {reason}; lower finetune.pairs.max_answer_words or raise pretrain.train.model.context."
        )
    items = multiple_choice.item_tasks(multiple_choice.read_items(args.tasks), tokenizer, context)
    for task in [*items, *labelled]:
        if reason := task.why_without_rows(context):
            notes.append(f"{task.name} was not asked: {reason}; raise pretrain.train.model.context.")
    return items, [*labelled, questions], notes


def body(args: argparse.Namespace, settings: ModelSettings, manifest: Manifest) -> list[Path]:
    harness.go_offline()
    import torch

    torch.set_num_threads(settings.threads)
    name = task_of(args.manifest)
    source, folder = verify_weights(args.model)
    rows, template = read_pairs(args.pairs, "heldout")
    documents, available = choose_documents(args.heldout, settings.max_tokens, settings.seed)
    if {*args.tokens} != {*args.heldout}:
        documents = find_in_tokens(documents, args.tokens)
    model, tokenizer, context = load_for_evaluation(folder, settings, name == UNTRAINED)
    template = layout_for(template, tokenizer)
    items, pair_tasks, notes = choose_tasks(args, rows, template, tokenizer, context)

    log.info("held-out text: %s of %s documents", f"{len(documents):,}", f"{available:,}")
    text, by_document = None, list[Row]()
    if documents:
        text, by_document = measure_heldout(
            model, first_token(tokenizer), documents, context, settings.carry, settings.batch_size
        )
        log.info("held-out loss %.4f nats/token, %.4f bits/byte", text["loss"], text["bits_per_byte"])
    else:
        notes.append("No loss was measured on held-out text: the corpus has no validation documents.")
    all_tasks = [*items, *pair_tasks]
    evaluation, tasks = harness.run_tasks(
        model, tokenizer, all_tasks, settings.tasks, context, settings.seed, settings.batch_size
    )
    notes += harness.task_notes(tasks["results"])
    numbers, lines = multiple_choice.task_results(all_tasks, evaluation.get("samples", {}), settings.seed)
    for kind, task_numbers in numbers.items():
        log.info("%s: accuracy %.3f (chance %.2f)", kind, task_numbers["accuracy"], task_numbers["chance"])
    question_numbers = numbers.pop(QUESTIONS, None)
    for note in notes:
        log.warning("%s", note)
    rows_by_kind = {"items": lines, "heldout": by_document}
    if name != UNTRAINED:
        sample_pairs = next((task.rows for task in reversed(pair_tasks) if task.rows), [])
        rows_by_kind["samples"] = list(sample_rows(model, tokenizer, sample_pairs, template, settings, context))
        generation_speed.write(args.manifest, generation_speed.measure_speed(model, tokenizer.eos_token_id, context))

    result = {
        "model": name,
        "step": source.step,
        "parameters": quantized_weights.count_parameters(model),
        "heldout_text": text,
        "questions": question_numbers and harness.question_numbers(evaluation, pair_tasks[-1], question_numbers),
        "items": numbers,
        "notes": notes,
        "tasks": tasks,
        "template": template.text,
        "software": {"lm_eval": version("lm_eval")},
    }
    manifest.counts = {
        "in": available,
        "kept": len(documents),
        "dropped": {"over_max_tokens": available - len(documents)} if available > len(documents) else {},
    }
    manifest.summary = {
        **{k: result[k] for k in ("parameters", "heldout_text", "questions", "items", "tasks", "notes")},
        "set": documents_digest(documents),
        "samples": rows_by_kind.get("samples", [])[:8],
    }
    return write_model_files(args.manifest, "evaluation", result, rows_by_kind)


main = Program("evaluate.model", __doc__, ModelSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
