"""Write a page for each filter with documents that it kept and dropped, for a person to mark what is wrong.

Of every rule a random sample of what it dropped and the documents nearest to its threshold on both sides; a random sample of what the
filter kept; of what it edits, the places struck out. The marks are saved as a file, from which `crawl2llm marks` estimates precision and
recall. Beside the pages `samples.jsonl`: which documents are shown, and as what.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, variant_of, write_atomically
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import excerpts, inspect_page, inspect_sampling, mark_precision, mark_words
from crawl2llm.stages.report import mark_lines as marked
from crawl2llm.stages.report.inspect_sampling import DocumentSampler
from crawl2llm.stages.report.select_settings import SelectSteps, settings_of
from crawl2llm.stages.report.settings import InspectSettings

SAMPLES = "samples.jsonl"


def group_rows(sampler: DocumentSampler) -> list[dict[str, Any]]:
    """The groups of a filter: `verdict, rule, documents` there are, and `sample`, how many are in the random sample."""
    return [
        {
            "verdict": group[0],
            "rule": group[1],
            "documents": number,
            "sample": min(number, sampler.random[group[0]].size),
        }
        for group, number in sorted(sampler.population.items())
    ]


def sample_lines(filter_: str, sampler: DocumentSampler, mark: str) -> Iterator[str]:
    """The lines of SAMPLES of a filter."""
    for document in sampler.shown_documents():
        verdict, rule = document.group
        yield json.dumps(
            {
                "filter": filter_,
                "id": document.id,
                "verdict": verdict,
                "rule": rule,
                "random": document.random,
                "probability": sampler.sample_probability(document.group),
                "near": {name: list(values[:3]) for name, values in document.near.items()},
                "run": mark,
            },
            ensure_ascii=False,
        )


class Task(InspectSettings, SelectSteps):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    run, folder, variant = Run.read(args.manifests), args.manifest.parent, variant_of(args.manifest)
    run.order, size, seed = list(map(steps.stage_of, settings.steps)), settings.samples, settings.seed
    files, json_lines, summary = [], list[str](), dict[str, Any]()
    progress = Progress(len(run.filters), "filters")
    for filter_ in run.filters:
        mark = mark_precision.verdict_digest(run, filter_)
        select = f"{filter_}.select"
        sampler = inspect_sampling.choose_documents(
            run, filter_, size, seed, settings_of(select, settings), settings.exempt[select]
        )
        rows = excerpts.document_details(run, filter_, sampler.shown_documents(), settings.characters)
        about = {
            "filter": filter_,
            "variant": variant,
            "run": mark,
            "groups": group_rows(sampler),
            "exempt": sampler.exempt,
        }
        page = inspect_page.filter_page(about, rows, run.filters, settings.characters)
        files.append(folder / f"{filter_}.html")
        write_atomically(files[-1], page.text)
        json_lines += sample_lines(filter_, sampler, mark)
        summary[filter_] = {
            "run": mark,
            "groups": about["groups"],
            "exempt": sampler.exempt,
            "edited": sampler.edited,
            "shown": page.shown,
            "bytes": len(page.text.encode()),
            "characters": page.characters,
        }
        progress.add()
    index, samples = folder / "index.html", folder / SAMPLES
    manifest.summary = {"filters": summary}
    if settings.marks:
        # As a run that has counted its edits: the marks of this step's config are joined with what it found.
        run.manifests[steps.INSPECT] = [manifest]
        manifest.summary["marks"] = mark_words.marks_for_page(
            mark_precision.marks_summary(run, marked.read_marks(map(Path, settings.marks)))
        )
    write_atomically(index, inspect_page.index_page(variant, summary, manifest.summary.get("marks")))
    write_atomically(samples, "".join(f"{line}\n" for line in json_lines))
    return [*files, index, samples]


def add_manifests(parser: argparse.ArgumentParser) -> None:
    """Add --manifests."""
    parser.add_argument(
        "--manifests",
        required=True,
        type=Path,
        nargs="+",
        help="the manifests of documents, and of every filter's steps",
    )


EXAMPLE = "--manifests $(find results/main -name '*manifest.json' -not -path '*/report/*')"
main = Program("report.inspect", __doc__, Task, body, add_manifests, EXAMPLE)


if __name__ == "__main__":
    raise SystemExit(main())
