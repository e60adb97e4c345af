"""Preferences, labelled answers and prompts to align models by: from files, the questions of finetune.pairs, or a model's own answers.

`preference.train.jsonl`, `labels.train.jsonl`, `prompts.train.jsonl` and the same of `heldout` have `id, question, of` (the file), and of a
preference `chosen` and `rejected`, of a labelled answer `answer` and `label`, of a prompt perhaps `answer`. A kind has files of its own, so
that a training is made again only if rows of a kind that it learns from change.
All rows of a conversation are on one side: held out by the hash of its first question.
Without files the rows are the questions of finetune.pairs with their answers, as prompts. Where `from` names a model, that answers each
question several times, and what rewards like best and least of its answers is a preference. Memory is bounded by `max_train` and
`max_heldout`: of each kind the rows of the lowest hash are held, and where files hold out different shares, a number for each question that
not all of them do. `chat_template.jinja` is the template of finetune.pairs, by which all is laid out.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, format_quantity, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, json_lines, write_atomically
from crawl2llm.filters.decontaminate.pairs import Guard
from crawl2llm.filters.pair_masking import MaskingSettings
from crawl2llm.filters.pair_masks import REASON, Masks, pii_masks
from crawl2llm.formats.documents import document_id, uniform_hash
from crawl2llm.stages.align.endpoint import EndpointJudge
from crawl2llm.stages.align.layouts import KEY, LABELS, PREFERENCE, PROMPTS, parse_row
from crawl2llm.stages.align.rewards import ENDPOINT
from crawl2llm.stages.align.self_preferences import sample_preferences
from crawl2llm.stages.align.settings import PairsFile, PairsSettings
from crawl2llm.text.text_key import text_key
from crawl2llm.training import pair_files
from crawl2llm.training.pair_layouts import RowError
from crawl2llm.training.template import CHAT, Template, read_pairs

STEP = "align.pairs"
HELDOUT = 0.05  # of the questions of a file
SALT = "finetune.files"  # as finetune.pairs, so that both hold out the same questions
EXAMPLES_SHOWN, CHARACTERS = 4, 400  # examples of a file in the summary, and characters of each text
FORMATS = (".jsonl", ".ndjson", ".json")
SPLITS = ("train", "heldout")
KINDS = (PREFERENCE, LABELS, PROMPTS)
Row = dict[str, Any]


class Task(PairsSettings, MaskingSettings):
    """What the program is given."""


def layout_of(row: Row) -> str:
    """The layout that a row is of."""
    if "chosen" in row:
        return PREFERENCE
    return LABELS if "label" in row else PROMPTS


def file_of(name: str, split: str) -> str:
    """The name of the file of the rows of a kind in a split."""
    return f"{name}.{split}.jsonl"


class LowestHashes:
    """Keeps the `size` rows of the lowest hash of their questions and ids, each once."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.heap, self.ids = size, seed, list[tuple[float, str, Row]](), set[str]()

    def add(self, row: Row) -> str:
        """Take a row in; the reason why this or another one is dropped, or ""."""
        if row["id"] in self.ids:
            return "duplicate"
        self.ids.add(row["id"])
        heapq.heappush(self.heap, (-uniform_hash(self.seed, row["id"], "align.order"), row["id"], row))
        if len(self.heap) <= self.size:
            return ""
        self.ids.remove(heapq.heappop(self.heap)[1])
        return "over_maximum"

    def rows_by_hash(self) -> list[Row]:
        """The rows held, by hash."""
        return [row for *_, row in sorted(self.heap, key=lambda held: (-held[0], held[1]))]


def result_row(source: str, fields: Row) -> Row:
    """A row of the results."""
    parts = [str(fields[name]) for name in sorted(fields)]
    return {"id": document_id(source, *parts), **fields, "of": source}


def layout_of_file(entry: PairsFile) -> str:
    """The layout of the rows of a file."""
    return entry.layout or PREFERENCE


def heldout_share(entry: PairsFile) -> float:
    """The share of a file's questions that is held out."""
    return HELDOUT if entry.heldout is None else entry.heldout


def from_file(
    number: int, entry: PairsFile, template: Template, dropped: Counter[str], mask: Masks | None = None
) -> Iterator[tuple[str, Row, Row]]:
    """(first question of the conversation, row, what the file says) of a file; what is no row is counted in `dropped`.

    mask: what replaces personal data, in what the file says alone not.

    Raises InputError for a file that cannot be read, or in which no row is of its layout.
    """
    path, layout, has_rows, names = Path(entry.path), layout_of_file(entry), False, set[str]()
    reasons = Counter[str]()
    if (path.with_suffix("") if path.suffix in pair_files.COMPRESSION_SUFFIXES else path).suffix not in FORMATS:
        raise InputError(
            f"{KEY}[{number}].path is {path}; allowed are files {', '.join(FORMATS)}, bare or as .gz or .zst"
        )
    for row in pair_files.rows(path, None, reasons):
        names = names or set(row)
        try:
            first, original = parse_row(row, layout, template)
            has_rows, masked = True, original
            if mask:
                first, masked = (mask([first], counted=False) or [first])[0], mask_row(original, mask)
        except RowError as error:
            reasons[str(error)] += 1
            continue
        yield first, result_row(path.name, masked), original
    dropped.update(reasons)
    if not has_rows:
        why = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
        raise InputError(
            f"{KEY}[{number}]: no row of {path} is of layout {layout!r} (allowed: {PREFERENCE}, {LABELS}, {PROMPTS})"
            + (f"; dropped: {why}" if why else "")
            + (f"; the first row has {', '.join(sorted(map(str, names)))}" if names else "; the file has no row")
        )


def mask_row(row: Row, mask: Masks) -> Row:
    """A row with its personal data replaced. Raises RowError if it has too much, or where its two answers differed in that alone."""
    names = [name for name, value in row.items() if isinstance(value, str)]
    masked = mask([row[name] for name in names])
    if masked is None:
        raise RowError(REASON)
    out = {**row, **dict(zip(names, masked, strict=True))}
    if "chosen" in out and out["chosen"] == out["rejected"]:
        raise RowError("same_answers")
    return out


def from_questions(manifest: Path) -> Iterator[tuple[str, Row]]:
    """(split, row) of each question of finetune.pairs, which has split them."""
    for split in SPLITS:
        for pair in read_pairs(manifest, split)[0]:
            yield split, result_row(pair["of"], {"question": pair["question"], "answer": pair["answer"]})


def heldout_places(settings: Task, template: Template) -> set[float]:
    """The places (`split_place`) of questions that a file holds out, and that another file's share would not."""
    shares = [heldout_share(entry) for entry in settings.files]
    return {
        at
        for number, (entry, share) in enumerate(zip(settings.files, shares, strict=True))
        if share > min(shares)  # what the least share holds out, every file does
        for first, *_ in from_file(number, entry, template, Counter(), pii_masks(settings.pii))
        if min(shares) <= (at := split_place(settings.seed, first)) < share
    }


def split_place(seed: int, first: str) -> float:
    """Where a conversation, by its first question, is between 0 and 1: held out where that is below a file's share."""
    return uniform_hash(seed, text_key(first), SALT)


def rows_with_split(
    settings: Task,
    pairs: Path,
    template: Template,
    dropped: Counter[str],
    heldout_questions: Set[str] = frozenset(),
    mask: Masks | None = None,
    guard: Guard | None = None,
) -> Iterator[tuple[str, Row]]:
    """(split, row) of all rows. heldout_questions: the questions, by `key`, that finetune.pairs holds out.

    Counted in `dropped` are rows to train on whose question, or the first of their conversation, is one of those (`contaminated`), or is
    held out by another file (`held_elsewhere`), and those of an evaluation set that `guard` knows, by set; of both splits those with an
    answer of more than `max_answer_words` (`long`).
    """
    if not settings.files:
        yield from from_questions(pairs)
    held_places = heldout_places(settings, template)
    for number, entry in enumerate(settings.files):
        progress = Progress(None, "rows")
        for first, row, original in from_file(number, entry, template, dropped, mask):
            progress.add()
            at = split_place(settings.seed, first)
            if answer_words(original) > (settings.max_answer_words or math.inf):
                dropped["long"] += 1
            elif at < heldout_share(entry):
                yield "heldout", row
            elif at in held_places:
                dropped["held_elsewhere"] += 1
            elif text_key(first) in heldout_questions or text_key(row["question"]) in heldout_questions:
                dropped["contaminated"] += 1
            elif guard and (
                why := guard.drop_reason(original["question"], *map(original.get, ("answer", "chosen", "rejected")))
            ):
                dropped[why] += 1
            else:
                yield "train", row


def answer_words(row: Row) -> int:
    """The words of a row's longest answer; 0 of a prompt without one."""
    return max(len(row.get(name, "").split()) for name in ("answer", "chosen", "rejected"))


def unique_prompts(rows: Iterable[tuple[str, Row]], dropped: Counter[str]) -> Iterator[tuple[str, Row]]:
    """(split, row) of each question once, as it comes first."""
    seen = set[str]()
    for split, row in rows:
        if row["question"] in seen:
            dropped["same_question"] += 1
            continue
        seen.add(row["question"])
        yield split, row


def count_rows(rows: list[Row], by: str) -> dict[str, int]:
    """{what: rows}, by the file (`of`) or the kind."""
    counts = Counter(row["of"] if by == "of" else layout_of(row) for row in rows)
    return dict(sorted(counts.items()))


def example_rows(rows: list[Row]) -> list[Row]:
    """The first EXAMPLES_SHOWN rows of each file, cut to what a reader looks at."""
    shown, number = [], Counter[str]()
    for row in rows:
        number[row["of"]] += 1
        if number[row["of"]] <= EXAMPLES_SHOWN:
            shown.append({name: value[:CHARACTERS] if isinstance(value, str) else value for name, value in row.items()})
    return sorted(shown, key=lambda row: str(row["of"]))


def endpoint_judge(settings: Task) -> EndpointJudge | None:
    """What judges where a reward is `endpoint`; before a model is read, so that what is wrong with it is said at once."""
    asking = [number for number, entry in enumerate(settings.rewards) if entry.reward == ENDPOINT]
    return EndpointJudge(settings.judge, f"{STEP}.rewards[{asking[0]}]") if settings.from_ and asking else None


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    judge = endpoint_judge(settings)
    finetune, template = read_pairs(args.pairs, "heldout")
    limits = {"train": settings.max_train, "heldout": settings.max_heldout}
    lowest_by_split = {(split, name): LowestHashes(limits[split], settings.seed) for split in SPLITS for name in KINDS}
    dropped, cut, total = Counter[str](), Counter[str](), 0
    mask = pii_masks(settings.pii)
    heldout_questions = {text_key(row["question"]) for row in finetune}
    guard = Guard(args.index[0] if args.index else None, settings.decontaminate)
    rows_given = rows_with_split(settings, args.pairs, template, dropped, heldout_questions, mask, guard)
    if settings.from_:
        if not args.model:
            raise InputError(f"align.pairs.from is {settings.from_!r}; give --model, its manifest")
        questions = unique_prompts(rows_given, dropped)
        preferred = sample_preferences(questions, args.model, settings, template, dropped, judge, cut)
        rows_given = ((split, result_row(row.pop("of"), row)) for split, row in preferred)
    for split, row in rows_given:
        total += 1
        if why := lowest_by_split[split, layout_of(row)].add(row):
            dropped[f"{split}_{why}"] += 1
    files = {
        file_of(name, split): json_lines(lowest.rows_by_hash()) for (split, name), lowest in lowest_by_split.items()
    }
    rows = {split: [row for name in KINDS for row in lowest_by_split[split, name].rows_by_hash()] for split in SPLITS}
    files[CHAT] = template.chat_template()
    for name, words in files.items():
        write_atomically(args.manifest.parent / name, words)
    refused = sum(count for why, count in dropped.items() if not why.startswith(SPLITS))
    manifest.counts = {
        "in": total + refused,
        "kept": sum(map(len, rows.values())),
        "dropped": {why: count for why, count in sorted(dropped.items()) if count},
    }
    manifest.summary = {
        "train": len(rows["train"]),
        "heldout": len(rows["heldout"]),
        "kinds": {name: count_rows(rows[name], "kind") for name in SPLITS},
        "by_source": {name: count_rows(rows[name], "of") for name in SPLITS},
        **template.summary(),
        "examples": example_rows(rows["train"]),
        "notes": [] if rows["heldout"] else ["No row is held out to measure an alignment by."],
    }
    if cut:
        manifest.summary["notes"].append(
            f"In {format_quantity(cut['prompts'], 'prompt')} the question was cut ({template.cut}) to leave room for an answer in the "
            "model's context."
        )
    if mask:
        manifest.summary["masked"] = dict(sorted(mask.masked_counts.items()))
    if judge:
        judged = manifest.summary["judged"] = judge.manifest_facts()
        if judged["no_score"]:
            manifest.summary["notes"].append(
                f"{judged['model']} gave {judged['no_score']:,} of {judged['answers']:,} answers no score; they are left out."
            )
    log.info("%s rows to train on, %s held out", f"{len(rows['train']):,}", f"{len(rows['heldout']):,}")
    return [args.manifest.parent / name for name in files]


def read_rows(manifest: Path, split: str, kinds: Sequence[str] = KINDS) -> tuple[list[Row], Template]:
    """The rows of some kinds in a split of an align.pairs manifest, and the template that they are laid out by.

    Those of one kind are in the order of their file, those of several in the order of their ids: no kind comes first.

    Raises InputError for a manifest of another step, ManifestError for a damaged one.
    """
    read = Manifest.read_of_step(STEP, manifest, "--pairs")
    by_kind = [read.rows(file_of(name, split)) for name in kinds]
    rows = [row for some in by_kind for row in some]
    if sum(map(bool, by_kind)) > 1:
        rows.sort(key=lambda row: str(row["id"]))
    return rows, Template.of_settings(read.summary)


def layouts_in(manifest: Path, split: str) -> list[str]:
    """The kinds of which an align.pairs manifest has rows in a split."""
    return sorted(Manifest.read_of_step(STEP, manifest, "--pairs", is_input=False).summary["kinds"][split])


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add --model, which any step that makes models may have made."""
    parser.add_argument(
        "--model", type=Path, nargs="?", help="manifest of the model that answers, where align.pairs.from names one"
    )


main = Program(STEP, __doc__, Task, body, add_model)


if __name__ == "__main__":
    raise SystemExit(main())
