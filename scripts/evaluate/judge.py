"""A judge's scores of a model's answers: each is put, with its question and reference, to a model behind an OpenAI-compatible endpoint.

Reads the answers that evaluate.generate left, and writes `<model>.judged.json` and `<model>.scores.jsonl`, a line for each answer with what
the judge said. Replies are kept on the disk by a hash of what was asked: an interrupted step goes on where it ended.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from scripts.evaluate.endpoint import Endpoint
from scripts.evaluate.measures import DIGITS, error
from scripts.workflow import cli
from scripts.workflow.console import log
from scripts.workflow.manifest import Manifest, json_lines, pretty, task_of, write_atomically

Row = dict[str, Any]
FIELD = re.compile(r"\{(question|answer|reference)\}")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")

OUT_OF = re.compile(r"(\d)\W*(?:/|\bout of\b)\s*\d+(?:\.\d+)?(?!\w)", re.IGNORECASE)


def asked(prompt: str, row: Row) -> str:
    """The prompt with an answer in it; what the answer itself spells is not filled in."""
    given = {"question": row["question"], "answer": row["text"], "reference": row["reference"]}
    return FIELD.sub(lambda match: str(given[match[1]]), prompt)


def score(reply: str, low: float, high: float) -> float | None:
    """The last number of a reply, but for what another is out of ("7/10", "7 out of 10"); None without one, or off the scale."""
    found = [float(number) for number in NUMBER.findall(OUT_OF.sub(r"\1", reply))]
    return found[-1] if found and low <= found[-1] <= high else None


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
    low, high = (float(end) for end in settings["scale"])
    if low >= high:
        raise cli.InputError(f"evaluate.judge.scale is {settings['scale']}; its second number must be the greater one")
    answers = made.rows(f"{name}.answers.jsonl")
    endpoint = Endpoint(args.endpoint, args.key or "", Path(args.cache), args.attempts, args.seconds, args.requests)
    requests = [
        {
            "model": settings["model"],
            "messages": [{"role": "user", "content": asked(settings["prompt"], row)}],
            "max_tokens": settings["max_tokens"],
            "temperature": 0,
        }
        for row in answers
    ]
    rows = [
        {**{key: row[key] for key in ("id", "document")}, "score": score(reply, low, high), "reply": reply}
        for row, reply in zip(answers, endpoint.answers(requests), strict=True)
    ]
    result = {"model": name, "judge": settings["model"], **numbers(rows, low, high, settings["seed"])}
    if result["without_score"]:
        log.warning("%s of %s replies have no number from %g to %g", result["without_score"], len(rows), low, high)
    if result["score"] is not None:
        log.info("mean score %.2f", result["score"])
    files = [args.manifest.with_name(f"{name}.judged.json"), args.manifest.with_name(f"{name}.scores.jsonl")]
    write_atomically(files[0], pretty(result))
    write_atomically(files[1], json_lines(rows))
    left = int(result["without_score"])
    manifest.counts = {"in": len(rows), "kept": len(rows) - left, "dropped": {"without_score": left} if left else {}}
    manifest.summary = {key: value for key, value in result.items() if key != "model"}
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "evaluate.judge",
        __doc__,
        "--config config.yaml --generated results/main/evaluate/generate/sft.manifest.json --manifest /tmp/judge/sft.manifest.json",
    )
    parser.add_argument("--generated", required=True, type=Path, help="manifest of evaluate.generate")
    cli.placement(parser, "evaluate.judge")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
