"""Question and answer pairs from the corpus, by regular expressions, and from files: pairs to fine-tune on, and held-out ones.

`train.jsonl` has `id, document, question, answer, of` (the pattern or the file) from training documents; `heldout.jsonl`, from
validation documents, also has `choices` (the answer among three other held-out answers of similar length) and `gold`, its place among
them. `document` is the id of the document, or of the conversation in a file. `chat_template.jinja` is the template as tokenizers have it.
A held-out pair whose question or answer occurs in any training document's pairs is dropped. One answer is kept for
a question. Memory is bounded by `max_train` and `max_heldout`: the pairs of the lowest hash are held, no others.
With fewer than `min_train` pairs fine-tuning is left out, with fewer than `min_heldout` the questions are not asked: `enough`
in the summary says so to the later steps, `notes` to the reader of the report.
"""

from __future__ import annotations

import argparse
import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log, singular_or_plural
from crawl2llm.core.manifest import Manifest, json_lines, write_atomically
from crawl2llm.core.settings import setting
from crawl2llm.filters.decontaminate.pairs import Guard
from crawl2llm.filters.pair_masking import MaskingSettings
from crawl2llm.filters.pair_masks import REASON, Masks, pii_masks
from crawl2llm.formats.documents import count_rows, document_id, rows, uniform_hash
from crawl2llm.stages.finetune.settings import PairsSettings
from crawl2llm.text.text_key import text_key
from crawl2llm.training import pair_files
from crawl2llm.training.pair_layouts import check_pair_settings
from crawl2llm.training.pair_patterns import Pattern, bounded_text, compile_patterns, document_title, matched_pairs
from crawl2llm.training.template import CHAT, Template, has_special_token

CHOICES = 4
HELDOUT = 0.05  # of the questions of a file
EXAMPLES_SHOWN, CHARACTERS = 4, 400  # examples of a pattern or file in the summary, and characters of each
SPARE = 8  # held-out candidates held for each one wanted, since many are dropped as contaminated
NEAREST = 24  # distractors are drawn from that many answers of the most similar length


class Task(PairsSettings, MaskingSettings):
    """What the program is given."""

    trains: bool = setting(True, "Whether a model is trained on the pairs.")


class LowestHashes:
    """Keeps one pair a question, for the `size` questions of the lowest hash, in whatever order they come."""

    def __init__(self, size: int, seed: int, salt: str) -> None:
        self.size, self.seed, self.salt = size, seed, salt
        self.pairs: dict[str, dict[str, Any]] = {}
        self.heap: list[tuple[float, str]] = []
        self.dropped: Counter[str] = Counter()

    def add(self, pair: dict[str, Any]) -> None:
        """Take a pair in, or count why it (or the one it takes the place of) is dropped."""
        name = text_key(pair["question"])
        if name in self.pairs:
            known_pair = self.pairs[name]
            same = text_key(known_pair["answer"]) == text_key(pair["answer"])
            self.dropped["duplicate" if same else "ambiguous"] += 1
            if self._answer_rank(pair) < self._answer_rank(known_pair):
                self.pairs[name] = pair
            return
        heapq.heappush(self.heap, (-uniform_hash(self.seed, name, self.salt), name))
        self.pairs[name] = pair
        if len(self.heap) > self.size:
            del self.pairs[heapq.heappop(self.heap)[1]]
            self.dropped["over_maximum"] += 1

    def _answer_rank(self, pair: dict[str, Any]) -> tuple[float, str]:
        return uniform_hash(self.seed, pair["id"], self.salt + ".answer"), pair["id"]

    def pairs_by_hash(self) -> list[dict[str, Any]]:
        """The pairs held, by hash."""
        return [self.pairs[name] for _, name in sorted(self.heap, reverse=True)]


def from_corpus(
    files: list[Path], patterns: list[Pattern], settings: PairsSettings, dropped: Counter[str]
) -> Iterator[dict[str, Any]]:
    """The pairs of the documents in `files`; those that are dropped for what they hold are counted in `dropped`, not given."""
    low, high = settings.min_answer_words, settings.max_answer_words
    progress = Progress(sum(count_rows(file) for file in files), "documents")
    for file in files:
        for row in rows(file, ["id", "text", "url", "metadata"]):
            text = bounded_text(row["text"], settings.max_characters, settings.max_line)
            for name, question, answer in matched_pairs(patterns, text, document_title(row)):
                words = len(answer.split())
                if has_special_token(question, answer):
                    dropped["special_token"] += 1
                elif low <= words <= high:
                    yield result_row(row["id"], question, answer, name)
                else:
                    dropped["short" if words < low else "long"] += 1
            progress.add()


def from_files(
    settings: PairsSettings, split: str, dropped: Counter[str], mask: Masks | None = None, guard: Guard | None = None
) -> Iterator[dict[str, Any]]:
    """The pairs of `finetune.pairs.files` for one split (`train` or `validation`): a conversation's are all in the same.

    mask: what replaces personal data, by which the split and the ids are also told; a pair with too much is counted as dropped.
    guard: those to train on that are of an evaluation set are counted in `dropped`, by set; the corpus is searched where documents are.
    """
    template, seed = Template.parse(settings.template), settings.seed
    reasons = dropped if split == "train" else Counter[str]()  # every file is read twice
    for number, entry in enumerate(settings.files):
        name, progress = Path(entry.path).name, Progress(None, "pairs")
        words = list(dict.fromkeys((entry.labels or {}).values()))
        heldout_share = HELDOUT if entry.heldout is None else entry.heldout
        for opening, question, answer in pair_files.pairs(number, entry, template, reasons):
            first = opening if mask is None else (mask([opening], counted=False) or [opening])[0]
            validation = uniform_hash(seed, text_key(first), "finetune.files") < heldout_share
            if validation == (split == "validation"):
                if not validation and guard and (why := guard.drop_reason(question, answer)):
                    dropped[why] += 1
                    continue
                if mask:
                    masked = mask([question, answer])
                    if masked is None:
                        dropped[REASON] += 1
                        continue
                    question, answer = masked
                row = {**result_row("", question, answer, name), "document": document_id(name, text_key(first))}
                yield row | ({"labels": words} if words else {})
            progress.add()


def result_row(document: str, question: str, answer: str, of: str) -> dict[str, Any]:
    """A row of the results. document: the id of that which it is from, or ""; of: the pattern or the file."""
    name = document_id(document, question, answer)
    return {"id": name, "document": document, "question": question, "answer": answer, "of": of}


def with_choices(pairs: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Each pair with `choices` and `gold`: its labels, or distractors by hash from the answers of the nearest length.

    With fewer than four different answers there is no choice, and pairs without labels stay as they are.
    """
    free = [pair for pair in reversed(pairs) if "labels" not in pair]
    answers = sorted({text_key(pair["answer"]): pair["answer"] for pair in free}.values(), key=lambda a: (len(a), a))
    out = []
    for pair in pairs:
        if "labels" in pair:
            out.append({**pair, "choices": pair["labels"], "gold": pair["labels"].index(pair["answer"])})
            continue
        if len(answers) < CHOICES:
            out.append(pair)
            continue
        at = bisect_left(answers, (len(pair["answer"]), pair["answer"]), key=lambda a: (len(a), a))
        near = sorted(
            (a for a in answers[max(0, at - NEAREST) : at + NEAREST + 1] if text_key(a) != text_key(pair["answer"])),
            key=lambda a: (abs(len(a) - len(pair["answer"])), a),
        )[:NEAREST]
        distractors = sorted(near, key=lambda a: (uniform_hash(seed, f"{pair['id']}\x1f{a}", "finetune.distractor"), a))
        choices = distractors[: CHOICES - 1]
        gold = int(uniform_hash(seed, pair["id"], "finetune.gold") * CHOICES)
        choices.insert(gold, pair["answer"])
        out.append({**pair, "choices": choices, "gold": gold})
    return out


def split_files(manifests: list[Path], name: str) -> list[Path]:
    """The Parquet files of one split (`train` or `validation`) that the corpus manifests list."""
    read = [Manifest.read(path) for path in manifests]
    return [
        manifest.file(file)
        for manifest in read
        for file in sorted(manifest.files)
        if file.startswith(f"{name}/") and file.endswith(".parquet")
    ]


WIDEN = "Add or widen finetune.pairs.patterns (`summary` reads Python documentation, `title` ordinary pages)"
PATTERN_REMEDIES = {
    "train": f"{WIDEN}, or give more documents",
    "heldout": f"{WIDEN}, or raise corpus.split.validation_fraction",
}
FILE_REMEDIES = {  # of a run whose pairs are those of files alone
    "train": "Give more rows in finetune.pairs.files, or lower it",
    "heldout": "Give more rows in finetune.pairs.files, raise their `heldout`, or lower it",
}


def shortage_notes(number: int, least: int, which: str, wording: str, consequence: str, remedy: str) -> list[str]:
    """A note where fewer pairs than `finetune.pairs.min_<which>` were found, and what follows from it; else none. wording: what they are
    called, with {} for the noun.
    """
    if number >= least:
        return []
    return [
        f"{consequence}: {number} {wording.format(singular_or_plural(number, 'pair'))} {singular_or_plural(number, 'was', 'were')} found, "
        f"and finetune.pairs.min_{which} is {least}. {remedy}."
    ]


def count_by_source(train: list[dict[str, Any]], heldout: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """{pattern or file: {"train": pairs, "heldout": pairs}}."""
    numbers = [Counter(row["of"] for row in rows) for rows in (train, heldout)]
    return {name: {"train": numbers[0][name], "heldout": numbers[1][name]} for name in sorted(numbers[0] | numbers[1])}


def example_rows(train: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first EXAMPLES_SHOWN training pairs of each pattern and file, cut to what a reader looks at."""
    shown, number = [], Counter[str]()
    for row in train:
        number[row["of"]] += 1
        if number[row["of"]] <= EXAMPLES_SHOWN:
            shown.append({name: row[name][:CHARACTERS] for name in ("question", "answer", "of")})
    return sorted(shown, key=lambda row: str(row["of"]))


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    template = Template.parse(settings.template, settings.question_cut)
    patterns, seed = compile_patterns(settings.patterns), settings.seed
    check_pair_settings(settings.patterns, settings.files)
    dropped: dict[str, Counter[str]] = {"train": Counter(), "heldout": Counter()}
    mask = pii_masks(settings.pii)
    guard = Guard(args.index[0] if args.index else None, settings.decontaminate)

    def split_pairs(name: str, reasons: Counter[str]) -> Iterator[dict[str, Any]]:
        documents = from_corpus(split_files(args.corpus, name), patterns, settings, reasons)
        return chain(documents, from_files(settings, name, reasons, mask, guard))

    # Held-out candidates first: they are few, and every training pair is then compared with them as it passes.
    heldout = LowestHashes(SPARE * settings.max_heldout, seed, "finetune.heldout")
    found_heldout = 0
    for row in split_pairs("validation", dropped["heldout"]):
        found_heldout += 1
        heldout.add(row)
    pairs = heldout.pairs_by_hash()
    # Labels are the same words for all: only their questions can have been seen.
    questions = {text_key(p["question"]) for p in pairs}
    answers = {text_key(p["answer"]) for p in pairs if "labels" not in p}
    seen_keys: set[str] = set()
    train = LowestHashes(settings.max_train, seed, "finetune.train")
    found_train = 0
    for row in split_pairs("train", dropped["train"]):
        found_train += 1
        train.add(row)
        seen_keys |= {text_key(row["question"])} & questions | {text_key(row["answer"])} & answers
    total = found_train + found_heldout + sum(part.total() for part in dropped.values())
    clean = [
        p
        for p in pairs
        if text_key(p["question"]) not in seen_keys and ("labels" in p or text_key(p["answer"]) not in seen_keys)
    ]
    heldout.dropped["contaminated"] += len(pairs) - len(clean)
    heldout_pairs = clean[: settings.max_heldout]
    heldout.dropped["over_maximum"] += len(clean) - len(heldout_pairs)
    rows_train = train.pairs_by_hash()
    rows_heldout = with_choices(heldout_pairs, seed)
    choice_count, wording = sum("choices" in row for row in rows_heldout), "held-out {}"
    if not choice_count:
        choice_count = len({text_key(p["answer"]) for p in heldout_pairs})
        wording = "held-out {} with different answers"
    remedies = PATTERN_REMEDIES if settings.patterns else FILE_REMEDIES
    few_train = shortage_notes(
        len(rows_train), settings.min_train, "train", "training {}", "Fine-tuning is left out", remedies["train"],
    )  # fmt: skip
    few_heldout = shortage_notes(
        choice_count, settings.min_heldout, "heldout", wording, "The held-out questions are not asked", remedies["heldout"],
    )  # fmt: skip
    files = {name: json_lines(out) for name, out in (("train.jsonl", rows_train), ("heldout.jsonl", rows_heldout))} | {
        CHAT: template.chat_template()
    }
    for name, words in files.items():
        write_atomically(args.manifest.parent / name, words)
    dropped["train"] += train.dropped
    dropped["heldout"] += heldout.dropped
    manifest.counts = {
        "in": total,
        "kept": len(rows_train) + len(heldout_pairs),
        "dropped": {f"{name}_{why}": n for name, part in dropped.items() for why, n in sorted(part.items()) if n},
    }
    manifest.summary = {
        "train": len(rows_train),
        "heldout": len(heldout_pairs),
        "enough": {"train": not few_train, "heldout": not few_heldout},
        # Without a model that would be fine-tuned nothing is left out.
        "notes": [*(few_train if settings.trains else []), *few_heldout],
        **template.summary(),
        "by_source": count_by_source(rows_train, rows_heldout),
        "examples": example_rows(rows_train),
    }
    if mask:
        manifest.summary["masked"] = dict(sorted(mask.masked_counts.items()))
    log.info("%s training pairs, %s held-out pairs", f"{len(rows_train):,}", f"{len(heldout_pairs):,}")
    for note in manifest.summary["notes"]:
        log.warning("%s", note)
    return [args.manifest.parent / name for name in files]


main = Program("finetune.pairs", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
