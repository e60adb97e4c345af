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
from typing import Any, cast

from crawl2llm.chain import command_line, placement_options
from crawl2llm.chain.config_schema import completed
from crawl2llm.core.console import Progress, log, quantity
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.formats import documents
from crawl2llm.formats.documents import document_id, uniform
from crawl2llm.stages.ingest.synthesized import TEXT, file_of
from crawl2llm.stages.synthesize.budget import Budget
from crawl2llm.stages.synthesize.checks import check_step
from crawl2llm.stages.synthesize.client import Asking
from crawl2llm.stages.synthesize.endpoint import Writer
from crawl2llm.stages.synthesize.prompts import Asked, Seed, name_of
from crawl2llm.stages.synthesize.replies import Judge
from crawl2llm.stages.synthesize.seeds import Seeds
from crawl2llm.text.group_split import SYNTHESIZED

SHOWN, CHARACTERS = 4, 400  # examples in the summary, and characters of each text
Texts = Callable[[Seed], Iterable[Asked]]


def row(step: str, asked: Asked, text: str, settings: dict[str, Any]) -> dict[str, str]:
    """A text as a row of TEXT. Its id comes from the step, the seed, its number among the seed's texts, and all that was asked."""
    prompt = name_of(asked.body(settings))
    facts = {
        "by": step,
        "seed": asked.seed.id,
        "url": asked.seed.url,
        "origin": asked.seed.origin,
        "prompt": prompt,
        "style": asked.style,
        "model": settings["model"],
    }
    return {
        "id": document_id(step, asked.seed.id, str(asked.number), prompt),
        "text": text,
        "url": f"{SYNTHESIZED}:{asked.seed.id}/{asked.number}",
        "metadata": json.dumps({SYNTHESIZED: facts}, ensure_ascii=False, sort_keys=True),
    }


def example(asked: Asked, text: str) -> dict[str, str]:
    """What a reader looks at of a text."""
    return {"style": asked.style, "url": asked.seed.url, "seed": asked.part[:CHARACTERS], "text": text[:CHARACTERS]}


class Made:
    """Writes texts, and counts what becomes of replies. folder: of the files."""

    def __init__(self, step: str, settings: dict[str, Any], folder: Path) -> None:
        self.step, self.settings = step, settings
        self.paths = [folder / file_of(number) for number in range(settings["files"])]
        self.dropped, self.styles, self.kept = Counter[str](), dict[str, dict[str, int]](), 0
        self.examples: list[dict[str, str]] = []
        self.uncounted = self.bytes = 0

    def write(self, asking: Asking, texts: Iterable[Asked]) -> None:
        """Ask for the texts, and write those that come."""
        judge = Judge(self.settings)
        with ExitStack() as stack:
            writers = [stack.enter_context(documents.Writer(path, TEXT)) for path in self.paths]
            for asked, reply in asking.replies(texts):
                self.uncounted += not reply.counted
                text, why = judge(asked, reply)
                style = self.styles.setdefault(asked.style, {"asked": 0, "kept": 0})
                style["asked"] += 1
                if why:
                    self.dropped[why] += 1
                    continue
                style["kept"] += 1
                self.kept += 1
                self.bytes += len(text.encode())
                if len(self.examples) < SHOWN:
                    self.examples.append(example(asked, text))
                at = int(uniform(self.settings["seed"], asked.seed.id, "file") * len(writers))
                writers[at].add(row(self.step, asked, text, self.settings))
        if asking.left:
            self.dropped["budget"] = asking.left


def body_of(texts: Callable[[dict[str, Any]], Texts]) -> command_line.Body:
    """The body of a step. texts: settings → what is asked for of a seed."""

    def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
        settings = completed(args.step, settings)
        check_step(args.step, settings)
        # Before any text is read, so that what is wrong with it is said at once.
        writer = cast(Writer, Writer.of(placement_options.given(args, args.step), args.step))
        seeds, of = Seeds(settings["seeds"], settings["seed"], f"{args.step}.seeds"), texts(settings)
        made, budget = Made(args.step, settings, args.manifest.parent), Budget.of(settings)
        with scratch(args.manifest.parent / ".seeds") as aside:
            files, total = seeds.written(aside, lambda seed: sum(1 for _ in of(seed)))
            if not total:
                raise command_line.InputError(
                    f"{args.step}.seeds: of {seeds.counts['documents']:,} documents none is chosen that a text could be made from"
                )
            asking = Asking(writer, budget, settings, Progress(total, "texts asked for"))
            made.write(asking, (asked for seed in seeds.ordered(files) for asked in of(seed)))
        summarise(manifest, made, seeds, budget)
        log.info(
            "%s texts of %s seeds; %s replies were in %s; %s", f"{made.kept:,}", f"{seeds.counts['chosen']:,}",
            f"{asking.known:,}", writer.cache, budget.told(),
        )  # fmt: skip
        if asking.left:
            log.warning("the budget is spent: %s texts were not asked for", f"{asking.left:,}")
        if not made.kept:
            log.warning("no text came of %s replies: %s", f"{asking.progress.done:,}", dict(made.dropped))
        return made.paths

    return body


def summarise(manifest: Manifest, made: Made, seeds: Seeds, budget: Budget) -> None:
    """What the manifest says: the same whether a reply came now or was on the disk."""
    dropped = sum(made.dropped.values())
    manifest.counts = {"in": made.kept + dropped, "kept": made.kept, "dropped": dict(sorted(made.dropped.items()))}
    manifest.summary = {
        "model": made.settings["model"],
        "seeds": dict(sorted(seeds.counts.items())),
        "styles": dict(sorted(made.styles.items())),
        "tokens": {"prompt": budget.spent.prompt, "completion": budget.spent.completion},
        "uncounted_replies": made.uncounted,  # whose endpoint did not say how many tokens they have
        "money": round(budget.price(budget.spent), 6) if any(budget.prices.values()) else None,
        "bytes": made.bytes,
        "files": len(made.paths),
        "examples": made.examples,
        "notes": notes(made),
    }


def notes(made: Made) -> list[str]:
    """Sentences for the report, where the result is not what was asked for."""
    found = []
    if left := made.dropped["budget"]:
        found.append(f"The budget was spent: {left:,} texts were not asked for.")
    if not made.kept:
        found.append("No text came of the replies.")
    if made.uncounted:
        found.append(
            f"The endpoint did not say how many tokens {quantity(made.uncounted, 'reply has', 'replies have')}: 4 bytes are counted as one."
        )
    return found


def program(step: str, doc: str | None, texts: Callable[[dict[str, Any]], Texts], argv: list[str] | None) -> int:
    """The program of a step."""
    parser = command_line.parser(
        step, doc, f"--config config.yaml --manifest /tmp/{step.partition('.')[2]}/manifest.json", always=True
    )
    command_line.placement(parser, step)
    return command_line.run(parser, body_of(texts), argv)


def numbered(seed: Seed, texts: Iterator[tuple[str, str, str]]) -> Iterator[Asked]:
    """(style, part of the seed, prompt) as what is asked for."""
    for number, (style, part, prompt) in enumerate(texts):
        yield Asked(seed, number, style, part, prompt)
