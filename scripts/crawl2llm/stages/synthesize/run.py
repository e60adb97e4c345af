"""What both steps do: ask for texts about seeds, drop replies that are none, and write the others with what they were made from.

Writes `texts-<number>.parquet`: `id, text, url, metadata`, in the order of the seeds' hashes; all texts of a seed are in one file.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, format_quantity, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.formats import documents
from crawl2llm.formats.documents import document_id, uniform_hash
from crawl2llm.stages.ingest.synthesized import TEXT, file_of
from crawl2llm.stages.synthesize.budget import Budget
from crawl2llm.stages.synthesize.checks import check_step
from crawl2llm.stages.synthesize.client import RequestQueue
from crawl2llm.stages.synthesize.endpoint import Writer
from crawl2llm.stages.synthesize.prompts import Seed, TextRequest, name_of
from crawl2llm.stages.synthesize.replies import Judge
from crawl2llm.stages.synthesize.seeds import Seeds
from crawl2llm.stages.synthesize.settings import RephraseSettings, SeedSettings, TextSettings
from crawl2llm.text.group_split import SYNTHESIZED

EXAMPLES, CHARACTERS = 4, 400  # examples in the summary, and characters of each text
RequestMaker = Callable[[Seed], Iterable[TextRequest]]
T = TypeVar("T", RephraseSettings, SeedSettings)


def text_row(step: str, request: TextRequest, text: str, settings: TextSettings) -> dict[str, str]:
    """A text as a row of TEXT. Its id comes from the step, the seed, its number among the seed's texts, and all that was asked."""
    prompt = name_of(request.body(settings))
    facts = {
        "by": step,
        "seed": request.seed.id,
        "url": request.seed.url,
        "origin": request.seed.origin,
        "prompt": prompt,
        "style": request.style,
        "model": settings.model,
    }
    return {
        "id": document_id(step, request.seed.id, str(request.number), prompt),
        "text": text,
        "url": f"{SYNTHESIZED}:{request.seed.id}/{request.number}",
        "metadata": json.dumps({SYNTHESIZED: facts}, ensure_ascii=False, sort_keys=True),
    }


def report_example(request: TextRequest, text: str) -> dict[str, str]:
    """What a reader looks at of a text."""
    return {
        "style": request.style,
        "url": request.seed.url,
        "seed": request.part[:CHARACTERS],
        "text": text[:CHARACTERS],
    }


class TextWriter:
    """Writes texts, and counts what becomes of replies. folder: of the files."""

    def __init__(self, step: str, settings: TextSettings, folder: Path) -> None:
        self.step, self.settings = step, settings
        self.paths = [folder / file_of(number) for number in range(settings.files)]
        self.dropped, self.styles, self.kept = Counter[str](), dict[str, dict[str, int]](), 0
        self.examples: list[dict[str, str]] = []
        self.uncounted = self.bytes = 0

    def write_texts(self, queue: RequestQueue, texts: Iterable[TextRequest]) -> None:
        """Ask for the texts, and write those that come."""
        judge = Judge(self.settings)
        with ExitStack() as stack:
            writers = [stack.enter_context(documents.Writer(path, TEXT)) for path in self.paths]
            for request, reply in queue.replies(texts):
                self.uncounted += not reply.counted
                text, why = judge(request, reply)
                style = self.styles.setdefault(request.style, {"asked": 0, "kept": 0})
                style["asked"] += 1
                if why:
                    self.dropped[why] += 1
                    continue
                style["kept"] += 1
                self.kept += 1
                self.bytes += len(text.encode())
                if len(self.examples) < EXAMPLES:
                    self.examples.append(report_example(request, text))
                at = int(uniform_hash(self.settings.seed, request.seed.id, "file") * len(writers))
                writers[at].add(text_row(self.step, request, text, self.settings))
        if queue.over_budget:
            self.dropped["budget"] = queue.over_budget


def step_program(step: str, doc: str | None, kind: type[T], requests_about: Callable[[T], RequestMaker]) -> Program[T]:
    """The `main` of a step. kind: the class of its settings. requests_about: settings → what is asked for of a seed."""

    def body(args: argparse.Namespace, settings: T, manifest: Manifest) -> list[Path]:
        check_step(step, settings)
        # Before any text is read, so that what is wrong with it is said at once.
        writer = Writer.of(settings, step)
        seeds, requests_of_seed = Seeds(settings.seeds, settings.seed, f"{step}.seeds"), requests_about(settings)
        text_writer = TextWriter(step, settings, args.manifest.parent)
        budget = Budget(settings.budget.tokens, settings.budget.money, settings.prices)
        with scratch_folder(args.manifest.parent / ".seeds") as aside:
            files, total = seeds.write_seeds(aside, lambda seed: sum(1 for _ in requests_of_seed(seed)))
            if not total:
                raise InputError(f"{step}.seeds: none of the {seeds.counts['documents']:,} documents can be used")
            queue = RequestQueue(writer, budget, settings, Progress(total, "texts asked for"))
            text_writer.write_texts(
                queue, (request for seed in seeds.seeds_in_order(files) for request in requests_of_seed(seed))
            )
        fill_manifest(manifest, text_writer, seeds, budget)
        log.info(
            "%s texts of %s seeds; %s replies were in %s; %s", f"{text_writer.kept:,}", f"{seeds.counts['chosen']:,}",
            f"{queue.cached:,}", writer.cache, budget.spent_text(),
        )  # fmt: skip
        if queue.over_budget:
            log.warning("the budget is spent: %s texts were not asked for", f"{queue.over_budget:,}")
        if not text_writer.kept:
            log.warning("no text came of %s replies: %s", f"{queue.progress.done:,}", dict(text_writer.dropped))
        return text_writer.paths

    return Program(step, doc, kind, body, always=True)


def fill_manifest(manifest: Manifest, text_writer: TextWriter, seeds: Seeds, budget: Budget) -> None:
    """What the manifest says: the same whether a reply came now or was on the disk."""
    dropped = sum(text_writer.dropped.values())
    manifest.counts = {
        "in": text_writer.kept + dropped,
        "kept": text_writer.kept,
        "dropped": dict(sorted(text_writer.dropped.items())),
    }
    manifest.summary = {
        "model": text_writer.settings.model,
        "seeds": dict(sorted(seeds.counts.items())),
        "styles": dict(sorted(text_writer.styles.items())),
        "tokens": {"prompt": budget.spent.prompt, "completion": budget.spent.completion},
        "uncounted_replies": text_writer.uncounted,  # whose endpoint did not say how many tokens they have
        "money": round(budget.price(budget.spent), 6) if budget.has_prices else None,
        "bytes": text_writer.bytes,
        "files": len(text_writer.paths),
        "examples": text_writer.examples,
        "notes": report_notes(text_writer),
    }


def report_notes(text_writer: TextWriter) -> list[str]:
    """Sentences for the report, where the result is not what was asked for."""
    sentences = []
    if left := text_writer.dropped["budget"]:
        sentences.append(f"The budget was spent: {left:,} texts were not asked for.")
    if not text_writer.kept:
        sentences.append("No text came of the replies.")
    if text_writer.uncounted:
        sentences.append(
            f"The endpoint did not report how many tokens "
            f"{format_quantity(text_writer.uncounted, 'reply has', 'replies have')}: 4 bytes are counted as one."
        )
    return sentences


def numbered_requests(seed: Seed, texts: Iterator[tuple[str, str, str]]) -> Iterator[TextRequest]:
    """(style, part of the seed, prompt) as what is asked for."""
    for number, (style, part, prompt) in enumerate(texts):
        yield TextRequest(seed, number, style, part, prompt)
