"""Make tasks from the run's own held-out documents, and what counting and compressing reach on them.

Writes `items.jsonl` (task, id, document, source, context, choices, gold, others: wrong choices that are from other documents), and
`unigram.items.jsonl` and `bigram.items.jsonl`, the results of these models item by item. The validation documents alone give items; the
training split gives the counts of n-grams and the dictionary of zstd. Text is decoded from tokens.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, format_quantity, log
from crawl2llm.core.manifest import Manifest, json_lines, write_atomically
from crawl2llm.core.settings import Settings, setting
from crawl2llm.formats.documents import document_id, uniform_hash
from crawl2llm.formats.public_tasks.measures import measure_task
from crawl2llm.stages.evaluate.baselines import NGRAMS, count_training_text, heldout_bits, ngram_likelihoods
from crawl2llm.stages.evaluate.documents import LONGEST, choose_by_hash, document_tokens, text_of
from crawl2llm.stages.evaluate.sentence_words import Text
from crawl2llm.stages.evaluate.settings import ItemsSettings
from crawl2llm.stages.evaluate.tasks import CHOICES, MAKERS, Item, Maker
from crawl2llm.training.heldout import choose_documents

DOCUMENTS_PER_ITEM = 4  # documents looked at for each item wanted, since some give none


class Heldout(Settings):
    """Which held-out text evaluate.model scores."""

    max_tokens: int = setting()
    seed: int = setting()


class Task(ItemsSettings):
    """What the program is given."""

    heldout: Heldout = setting()


class ItemCollector:
    """The items of all tasks, as the documents come in their order."""

    def __init__(self, settings: ItemsSettings) -> None:
        self.settings = settings
        self.ranked_items: dict[str, list[tuple[int, int, Item]]] = {task: [] for task in settings.tasks}
        self.dropped: dict[str, Counter[str]] = {task: Counter() for task in settings.tasks}
        self.candidates: Counter[str] = Counter()
        self.giving_documents: dict[str, int] = dict.fromkeys(settings.tasks, 0)
        self.spans: list[tuple[str, str]] = []  # (document, a stretch of it): wrong choices for short documents
        self.documents: list[str] = []

    @property
    def has_enough(self) -> bool:
        """Whether later documents would give nothing: there is an item of another document for each one wanted."""
        return all(number >= self.settings.per_task for number in self.giving_documents.values())

    def add_document(self, text: Text) -> None:
        """Take what a document gives."""
        maker = Maker(text, self.settings)
        for task in self.settings.tasks:
            task_items = MAKERS[task](maker)
            self.ranked_items[task] += [(turn, len(self.documents), item) for turn, item in enumerate(task_items.items)]
            self.giving_documents[task] += bool(task_items.items)
            self.candidates[task] += task_items.candidates
            self.dropped[task] += task_items.dropped
        spans = sorted(
            (maker.hash_rank("span", at), span_text)
            for at, span_text in maker.text_spans()
            if maker.is_fit_choice(span_text)
        )[:1]
        self.spans += [(text.id, span_text) for _, span_text in spans]
        self.documents.append(text.id)

    def fill_choices(self, item: Item) -> bool:
        """Give an item that lacks wrong choices those of other documents, by hash; whether it has them all."""
        if not item.lacking:
            return True
        known_choices, seed = {text.casefold() for text in item.choices}, self.settings.seed
        for _, name, span_text in sorted(
            (uniform_hash(seed, f"{item.id}\x1f{name}", "evaluate.items.others"), name, span_text)
            for name, span_text in self.spans
        ):
            if len(item.choices) == CHOICES:
                break
            if name != item.document and span_text.casefold() not in known_choices:
                item.choices.append(span_text)
                known_choices.add(span_text.casefold())
        return len(item.choices) == CHOICES

    def selected_items(self, task: str) -> list[Item]:
        """`per_task` items: the first of every document, then the second ones; each question once. The rest is counted as dropped."""
        selection: list[Item] = []
        seen_questions: set[tuple[str, ...]] = set()
        for *_, item in sorted(self.ranked_items[task], key=lambda entry: entry[:2]):
            if len(selection) == self.settings.per_task:
                self.dropped[task]["over_per_task"] += 1
            elif not self.fill_choices(item):
                self.dropped[task]["no_distractors"] += 1
            elif (
                same := (item.context, *item.choices) if task == "next_word" else (item.choices[0],)
            ) in seen_questions:
                self.dropped[task]["repeated"] += 1
            else:
                seen_questions.add(same)
                selection.append(item)
        return selection


def item_row(item: Item, seed: int) -> dict[str, Any]:
    """An item as it is written: the right choice at a place by hash.

    Its id is also that of its words: results under one id are answers to one question, whatever the settings that they were made with.
    """
    gold = int(uniform_hash(seed, item.id, "evaluate.items.gold") * len(item.choices))
    right, *wrong = item.choices
    return {
        "task": item.task,
        "id": document_id(item.id, item.context, *item.choices),
        "document": item.document,
        "source": item.source,
        "context": item.context,
        "choices": [*wrong[:gold], right, *wrong[gold:]],
        "gold": gold,
        "others": item.lacking,
    }


def shortage_notes(rows: dict[str, list[dict[str, Any]]], per_task: int, documents: int) -> list[str]:
    """A note where a task has fewer items than are wanted."""
    short_tasks = [f"{task} {len(task_rows)}" for task, task_rows in rows.items() if len(task_rows) < per_task]
    if not short_tasks:
        return []
    return [
        f"Fewer items than evaluate.items.per_task = {per_task}: {', '.join(short_tasks)}. "
        f"{format_quantity(documents, 'validation document')} gave no more; add documents, or raise "
        "corpus.split.validation_fraction or evaluate.items.per_document."
    ]


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    file = Manifest.read(args.tokenizer).verify_files("tokenizer.json").file("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.encode_special_tokens = True  # as in tokenize.encode: special tokens are not recognised in text
    seed = settings.seed
    limit = DOCUMENTS_PER_ITEM * settings.per_task if settings.tasks else 1
    documents, available = choose_by_hash(args.tokens, "validation", limit, seed, "evaluate.items", lambda _: 1)
    collector = ItemCollector(settings)
    progress = Progress(len(documents), "validation documents")
    for document, ids in document_tokens(documents, LONGEST):
        if collector.has_enough:
            break
        collector.add_document(Text(document.id, document.source, text_of(tokenizer, document, ids)))
        progress.add()
    rows: dict[str, list[dict[str, Any]]] = {
        task: [item_row(item, seed) for item in collector.selected_items(task)] for task in settings.tasks
    }
    notes = shortage_notes(rows, settings.per_task, available)
    for note in notes:
        log.warning("%s", note)

    counts, samples = count_training_text(args.tokens, settings.counted_tokens, seed, tokenizer)
    heldout_documents, _ = choose_documents(args.tokens, settings.heldout.max_tokens, settings.heldout.seed)
    text = heldout_bits(counts, samples, heldout_documents, tokenizer) if heldout_documents else None
    tasks: dict[str, Any] = {}
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in NGRAMS}
    for task, task_rows in rows.items():
        by_model = {}
        for name, nats in ngram_likelihoods(counts, tokenizer, task_rows).items() if task_rows else ():
            by_model[name], results = measure_task(task, task_rows, nats, seed)
            lines[name] += results
        tasks[task] = {
            "items": len(task_rows),
            "documents": len({item["document"] for item in task_rows}),
            "others": sum(bool(item["others"]) for item in task_rows),
            "candidates": {
                "in": collector.candidates[task],
                "kept": len(task_rows),
                "dropped": {reason: number for reason, number in sorted(collector.dropped[task].items()) if number},
            },
            "baselines": by_model,
        }
    files = {"items": [item for task_items in rows.values() for item in task_items]}
    files |= {f"{name}.items": results for name, results in lines.items()}
    for name, file_rows in files.items():
        write_atomically(args.manifest.with_name(f"{name}.jsonl"), json_lines(file_rows))
    kept_documents = len({item["document"] for item in files["items"]})
    dropped = {
        "no_item": len(collector.documents) - kept_documents,
        "over_per_task": available - len(collector.documents),
    }
    manifest.counts = {"in": available, "kept": kept_documents, "dropped": {why: n for why, n in dropped.items() if n}}
    manifest.summary = {
        "tasks": tasks,
        "heldout_text": text,
        "counted": {"tokens": counts.tokens, "pairs": len(counts.pairs), "discount": round(counts.discount, 6)},
        "notes": notes,
        "examples": {task: task_items[:2] for task, task_items in rows.items()},
    }
    return [args.manifest.with_name(f"{name}.jsonl") for name in files]


main = Program("evaluate.items", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
