"""Print the result of a run: where the report is, its few main numbers, and what is missing. `make demo` ends with it."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.chain.model_registry import REWARD_STEP
from crawl2llm.core import task_costs
from crawl2llm.core.console import form, put, quantity
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.core.task_costs import counting
from crawl2llm.formats.run_records import benchmark, dig
from crawl2llm.stages.report import alarms, tasks
from crawl2llm.stages.report.comparison_table import WORDS, change, measure
from crawl2llm.stages.report.model_table import accuracy
from crawl2llm.stages.report.models import title, trained
from crawl2llm.stages.report.page import NARROW, NOTHING, duration, integer, short, significant, size
from crawl2llm.stages.report.tables import parameters

SHOWN = 100  # characters of what a model goes on with


def lines(counts: dict[str, Any], seconds: float | None, page: Path) -> list[tuple[str, str]]:
    """(what, its numbers with their units) from the report's counts.json and the seconds of all tasks."""
    train, models = dig(counts, "corpus", "train"), counts.get("models") or []
    held = dig(counts, "corpus", "validation", "documents")
    pretrain = models[0]["training"] if models else None
    late = counts.get("outdated") or {}
    documents, records, steps = dig(train, "documents"), counts.get("documents_read"), dig(pretrain, "steps")

    def mark(*steps: str) -> str:
        """What follows a number of results that no longer belong to the others."""
        found = [step for step in steps if step in late]
        return f" (outdated, see below: {', '.join(found)})" if found else ""

    made = [
        ("report", str(page)),
        (
            "corpus",
            f"{integer(documents)} {form(documents, 'document')}{f' to train on, {integer(held)} held out' if held else ''}, "
            f"{size(dig(train, 'bytes'))} of text, "
            f"{short(dig(counts, 'tokens', 'train', 'tokens'))} tokens; "
            f"from {integer(records)} crawl {form(records, 'record')}{mark('corpus.write', 'tokenize.encode')}",
        ),
        (
            "trained",
            f"{short(parameters(pretrain))} parameters on {short(dig(pretrain, 'tokens'))} tokens, "
            f"{integer(steps)} {form(steps, 'step')}{mark('pretrain.train')}"
            if pretrain
            else "no model yet",
        ),
    ]
    for model in models:
        name, found = title(model["name"]).lower(), model["evaluation"]
        text, asked = dig(found, "heldout_text"), dig(found, "questions")
        bits = significant(dig(text, "bits_per_byte"))
        if not found:
            made.append((name, rewarding(model)))
            continue
        if not trained(model):
            made.append((name, f"not trained, this is the model {model['from']} (see the note)"))
            continue
        chance = "" if accuracy(asked) == NOTHING else f" right (chance {accuracy({'acc': dig(asked, 'chance')})})"
        smaller = dig(model, "training", "bytes_before")
        if smaller and smaller != dig(model, "training", "bytes"):
            bits = f"{size(dig(model, 'training', 'bytes'))} instead of {size(smaller)}, {bits}"
        made.append(
            (name, f"{bits} bits per held-out byte, questions {accuracy(asked)}{chance}{mark('evaluate.model')}")
        )
    made += [("export", exported(one)) for one in counts.get("exports") or []]
    made += [*tasks.lines(counts), *compared(counts), *continued(counts)]
    made.append(("time", f"{duration(seconds)} over all tasks" if seconds else NOTHING))
    if pretrain:
        made.append(("talk", "make serve (crawl2llm serve): a page to chat with the models in"))
    made += [("note", sentence) for sentence in alarms.to_do(counts.get("alarms"))]
    made += [("note", text) for text in notes(counts.get("notes") or [])]
    for row in counts.get("missing") or []:
        made.append(("missing", f"{row['step']}: {row['words']}" + (f" ({row['log']})" if row["log"] else "")))
    made += [("damaged", f"{file}: {problem}") for file, problem in counts.get("damaged") or []]
    made += [("outdated", f"{step}: {text}") for step, text in late.items()]
    if other := counts.get("other"):
        made.append(("outdated", f"made under other settings, code or input: {', '.join(other)}"))
    return made


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """What steps say about themselves, each text once with all steps that say it."""
    steps: dict[str, list[str]] = {}
    for row in rows:
        steps.setdefault(row["text"], []).append(row["step"])
    return [f"{', '.join(names)}: {text}" for text, names in steps.items()]


def exported(one: dict[str, Any]) -> str:
    """An export's folder, its model, and the size of each of its files."""
    files = ", ".join(f"{file['type']} {size(file['bytes'])}" for file in one["files"])
    return f"{one['folder']}, of {title(str(one['of'])).lower()}: {files}"


def compared(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A line for each model and the one that it is made from: on what the second is better or worse, and how many measures do not tell them
    apart. The page has all pairs.
    """
    parents = {model["name"]: model.get("from") for model in counts.get("models") or []}
    for pair in counts.get("compared") or []:
        if pair["first"] != parents.get(pair["second"]) and pair["second"] != parents.get(pair["first"]):
            continue
        by_verdict: dict[str, list[str]] = {verdict: [] for verdict in WORDS}
        for one in pair["measures"]:
            name, verdict = one["measure"], one["verdict"]
            by_verdict[verdict].append(f"{measure(name).lower()} ({change(one['difference'], name)})")
        said = [f"{WORDS[verdict]} on {', '.join(names)}" for verdict, names in by_verdict.items() if names]
        if not said:
            continue
        if unclear := by_verdict.pop("unclear"):
            said[-1] = f"{WORDS['unclear']} on {quantity(len(unclear), 'measure')}"
        yield "compared", f"{title(pair['second']).lower()} with {title(pair['first']).lower()}: {'; '.join(said)}"


def continued(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each prompt, and below it a line for what each model goes on with."""
    for row in counts.get("continued") or []:
        yield "prompt", row["prompt"]
        for name, text in row["outputs"]:
            yield f"  {name.lower()}", f"… {shorten(text, SHOWN, placeholder=' …')}"


def show(rows: list[tuple[str, str]]) -> None:
    """Print the lines."""
    for name, text in rows:
        put(f"{name:<11} {text}".replace(NARROW, " "))


def main(argv: list[str] | None = None) -> int:
    parser = command_line.described("python -m crawl2llm.stages.report.summary", __doc__, "--results results/main")
    parser.add_argument("--results", type=Path, default=Path("results/main"), help="a variant's results")
    parser.add_argument("--open", action="store_true", help="open the report in a browser")
    args = parser.parse_args(argv)
    folder = args.results / "report" / "render"
    try:
        counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return command_line.fail(
            f"no report in {args.results} yet; run `make demo`, or `snakemake --profile profiles/local`. "
            "`crawl2llm report` shows what is there so far"
        )
    except (OSError, ValueError) as error:
        return command_line.fail(f"{folder / 'counts.json'}: {error}; run `make report`")
    page = folder / "report.html"
    show(lines(counts, seconds_of(args.results), page))
    together = args.results.parent / "main/report/compare/compare.html"
    if together.exists():
        show([("variants", f"all compared: {together}")])
    if args.open and not webbrowser.open(page.absolute().as_uri()):
        return command_line.fail(f"no browser was found: open {page.absolute()} yourself")
    return 0


def seconds_of(results: Path) -> float | None:
    """Seconds of all tasks that the report was made from, as it shows them; None where nothing was measured."""
    try:
        made = Manifest.parse(results / "report/render/manifest.json")
    except ManifestError:
        return None
    files = [task_costs.benchmark(path) for _, path, _ in Inputs(results.parent).of(made)]
    measured = [row for path in counting(files) if path.exists() for row in benchmark(path)]
    return sum(row.get("s", 0.0) for row in measured) if measured else None


def rewarding(model: dict[str, Any]) -> str:
    """What is said of a model without an evaluation: of a reward model how often it is right."""
    after = dig(model, "training", "heldout_accuracy_after")
    if model["step"] != REWARD_STEP or after is None:
        return "not evaluated"
    error = dig(model, "training", "heldout_accuracy_stderr")
    about = "" if error is None else f" ± {100 * error:.1f} %"
    return f"reward model, {100 * after:.1f} %{about} of held-out pairs in the right order (chance 50.0 %)"


if __name__ == "__main__":
    raise SystemExit(main())
