"""A judge's scores of a model's answers: each is put, with its question and reference, to a model behind an OpenAI-compatible endpoint.

Reads the answers that evaluate.generate left, and writes `<model>.judged.json` and `<model>.scores.jsonl`, a line for each answer with what
the judge said: null where the endpoint refuses the request, such as one that is longer than its context.
Replies are kept on the disk by a hash of what was asked: an interrupted step goes on where it ended.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, placement_options
from crawl2llm.core.console import log
from crawl2llm.core.endpoint import Endpoint
from crawl2llm.core.judging import ends, request, score
from crawl2llm.core.manifest import Manifest, json_lines, pretty, task_of, write_atomically
from crawl2llm.formats.public_tasks.measures import DIGITS, error

STEP = "evaluate.judge"
Row = dict[str, Any]


def numbers(rows: list[Row], low: float, high: float, seed: int) -> Row:
    """Mean `score`, its standard error by bootstrap over documents, `share` from 0 (the scale's lowest) to 1, and how many have none."""
    kept = [row for row in rows if row["score"] is not None]
    mean = sum(row["score"] for row in kept) / len(kept) if kept else None
    # The error is that of a mean of any numbers, for what is named `right` there.
    wide = error([row["score"] for row in kept], [row["document"] for row in kept], seed, "judge") if kept else None
    found = {"score": mean, "stderr": wide, "share": None if mean is None else (mean - low) / (high - low)}
    return {
        **{key: None if value is None else round(value, DIGITS) for key, value in found.items()},
        "items": len(kept),
        "documents": len({row["document"] for row in kept}),
        "without_score": len(rows) - len(kept),
        "scale": [low, high],
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    name, made = task_of(args.manifest), Manifest.of("evaluate.generate", args.generated, "--generated")
    low, high = ends(settings["scale"], STEP)
    answers = made.rows(f"{name}.answers.jsonl")
    endpoint = Endpoint.of(placement_options.given(args, STEP), STEP)
    requests = [request(settings, row["question"], row["text"], row["reference"]) for row in answers]
    rows = [
        {**{key: row[key] for key in ("id", "document")}, "score": score(reply, low, high), "reply": reply}
        for row, reply in zip(answers, endpoint.answers(requests), strict=True)
    ]
    result = {"model": name, "judge": settings["model"], **numbers(rows, low, high, settings["seed"])}
    refused = sum(row["reply"] is None for row in rows)
    if silent := result["without_score"] - refused:
        log.warning("%s of %s replies have no number from %g to %g", silent, len(rows) - refused, low, high)
    if result["score"] is not None:
        log.info("mean score %.2f", result["score"])
    files = [args.manifest.with_name(f"{name}.judged.json"), args.manifest.with_name(f"{name}.scores.jsonl")]
    write_atomically(files[0], pretty(result))
    write_atomically(files[1], json_lines(rows))
    dropped = {"refused": refused, "without_score": silent}
    manifest.counts = {
        "in": len(rows),
        "kept": result["items"],
        "dropped": {why: number for why, number in dropped.items() if number},
    }
    manifest.summary = {key: value for key, value in result.items() if key != "model"}
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        STEP,
        __doc__,
        "--config config.yaml --generated results/main/evaluate/generate/sft.manifest.json --manifest /tmp/judge/sft.manifest.json",
    )
    parser.add_argument("--generated", required=True, type=Path, help="manifest of evaluate.generate")
    command_line.placement(parser, STEP)
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
