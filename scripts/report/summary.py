"""Print what a run came to: where the report is, its few main numbers, and what is missing. `make demo` ends with it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from scripts.common import cli
from scripts.common.costs import counting
from scripts.report.page import NARROW, NOTHING, duration, integer, short, significant, size
from scripts.report.records import benchmark, dig
from scripts.report.tables import MODELS, accuracy, parameters


def lines(counts: dict[str, Any], seconds: float | None, page: Path) -> list[tuple[str, str]]:
    """(what, its numbers with their units) from the report's counts.json and the seconds of all tasks."""
    train, pretrain = dig(counts, "corpus", "train"), counts.get("pretrain")
    late = counts.get("outdated") or {}

    def mark(*steps: str) -> str:
        """What follows a number of results that no longer belong to the others."""
        found = [step for step in steps if step in late]
        return f" (outdated, see below: {', '.join(found)})" if found else ""

    made = [
        ("report", str(page)),
        (
            "corpus",
            f"{integer(dig(train, 'documents'))} documents, {size(dig(train, 'bytes'))}, "
            f"{short(dig(counts, 'tokens', 'train', 'tokens'))} tokens; "
            f"from {integer(counts.get('documents_read'))} crawl records{mark('corpus.write', 'tokenize.encode')}",
        ),
        (
            "trained",
            f"{short(parameters(pretrain))} parameters on {short(dig(pretrain, 'tokens'))} tokens, "
            f"{integer(dig(pretrain, 'steps'))} steps{mark('pretrain.train')}"
            if pretrain
            else "no model yet",
        ),
    ]
    for model, name in MODELS.items():
        found = dig(counts, "evaluation", model)
        text, asked = dig(found, "heldout_text"), dig(found, "questions")
        bits = significant(dig(text, "bits_per_byte"))
        if not found:
            made.append((name.lower(), "not evaluated"))
            continue
        if model == "finetune" and dig(counts, "finetune", "trained") is False:
            made.append((name.lower(), "not fine-tuned, this is the base model (see the note)"))
            continue
        chance = "" if accuracy(asked) == NOTHING else f" (chance {accuracy({'acc': dig(asked, 'chance')})})"
        made.append(
            (name.lower(), f"{bits} bits per held-out byte, accuracy {accuracy(asked)}{chance}{mark('evaluate.model')}")
        )
    made.append(("time", f"{duration(seconds)} over all tasks" if seconds else NOTHING))
    made += [("note", f"{note['step']}: {note['text']}") for note in counts.get("notes") or []]
    for row in counts.get("missing") or []:
        made.append(("missing", f"{row['step']}: {row['words']}" + (f" ({row['log']})" if row["log"] else "")))
    made += [("damaged", f"{file}: {problem}") for file, problem in counts.get("damaged") or []]
    made += [("outdated", f"{step}: {text}") for step, text in late.items()]
    if other := counts.get("other"):
        made.append(("outdated", f"made under other settings, code or input: {', '.join(other)}"))
    return made


def show(rows: list[tuple[str, str]]) -> None:
    """Print the lines."""
    for name, text in rows:
        print(f"{name:<12}{text}".replace(NARROW, " "))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.report.summary",
        description=__doc__,
        epilog="example:\n  python -m scripts.report.summary --results results/main",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=Path("results/main"), help="a variant's results")
    args = parser.parse_args(argv)
    folder = args.results / "report" / "render"
    try:
        counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return cli.fail(
            f"no report in {args.results} yet; run `make demo`, or `snakemake --profile profiles/local`. "
            "`crawl2llm report` shows what is there so far"
        )
    except (OSError, ValueError) as error:
        return cli.fail(f"{folder / 'counts.json'}: {error}; run `make report`")
    measured = [
        row for path in counting(sorted((args.results / "benchmarks").rglob("*.tsv"))) for row in benchmark(path)
    ]
    seconds = sum(row.get("s", 0.0) for row in measured) if measured else None
    show(lines(counts, seconds, folder / "report.html"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
