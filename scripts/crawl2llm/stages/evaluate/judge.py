"""A judge's scores of a model's answers: each is put, with its question and reference, to a model behind an OpenAI-compatible endpoint.

Reads the answers that evaluate.generate left, and writes `<model>.judged.json` and `<model>.scores.jsonl`, a line for each answer with what
the judge said: null where the endpoint refuses the request, such as one that is longer than its context.
Replies are kept on the disk by a hash of what was asked: an interrupted step goes on where it ended.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.endpoint import Endpoint
from crawl2llm.core.judging import parse_score, scale_ends, score_request
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.public_tasks.measures import DIGITS, standard_error
from crawl2llm.stages.evaluate.result_files import write_model_files
from crawl2llm.stages.evaluate.settings import JudgeSettings

STEP = "evaluate.judge"
Row = dict[str, Any]


def score_numbers(rows: list[Row], low: float, high: float, seed: int) -> Row:
    """Mean `score`, its standard error by bootstrap over documents, `share` from 0 (the scale's lowest) to 1, and how many have none."""
    scored_rows = [row for row in rows if row["score"] is not None]
    mean = sum(row["score"] for row in scored_rows) / len(scored_rows) if scored_rows else None
    # The error is that of a mean of any numbers, for what is named `right` there.
    stderr = (
        standard_error([row["score"] for row in scored_rows], [row["document"] for row in scored_rows], seed, "judge")
        if scored_rows
        else None
    )
    measures = {"score": mean, "stderr": stderr, "share": None if mean is None else (mean - low) / (high - low)}
    return {
        **{key: None if value is None else round(value, DIGITS) for key, value in measures.items()},
        "items": len(scored_rows),
        "documents": len({row["document"] for row in scored_rows}),
        "without_score": len(rows) - len(scored_rows),
        "scale": [low, high],
    }


def body(args: argparse.Namespace, settings: JudgeSettings, manifest: Manifest) -> list[Path]:
    name, generation = task_of(args.manifest), Manifest.read_of_step("evaluate.generate", args.generated, "--generated")
    low, high = scale_ends(settings.scale, STEP)
    answers = generation.rows(f"{name}.answers.jsonl")
    endpoint = Endpoint.of(settings, STEP)
    requests = [
        score_request(
            settings.model, settings.prompt, settings.max_tokens, row["question"], row["text"], row["reference"]
        )
        for row in answers
    ]
    rows = [
        {**{key: row[key] for key in ("id", "document")}, "score": parse_score(reply, low, high), "reply": reply}
        for row, reply in zip(answers, endpoint.answers(requests), strict=True)
    ]
    result = {"model": name, "judge": settings.model, **score_numbers(rows, low, high, settings.seed)}
    refused = sum(row["reply"] is None for row in rows)
    if without_number := result["without_score"] - refused:
        log.warning("%s of %s replies have no number from %g to %g", without_number, len(rows) - refused, low, high)
    if result["score"] is not None:
        log.info("mean score %.2f", result["score"])
    dropped = {"refused": refused, "without_score": without_number}
    manifest.counts = {
        "in": len(rows),
        "kept": result["items"],
        "dropped": {reason: number for reason, number in dropped.items() if number},
    }
    manifest.summary = {key: value for key, value in result.items() if key != "model"}
    return write_model_files(args.manifest, "judged", result, {"scores": rows})


main = Program(STEP, __doc__, JudgeSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
