"""Print the result of a run: where the report is, its few main numbers, and what is missing. `make demo` ends with it."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Container, Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.chain.model_registry import PUBLISHED_STEP, REWARD_STEP
from crawl2llm.core import task_costs
from crawl2llm.core.console import format_quantity, print_line, singular_or_plural
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.core.task_costs import work_benchmarks
from crawl2llm.formats.model_summaries import parameter_count
from crawl2llm.formats.run_records import nested_value, read_benchmark
from crawl2llm.stages.report import alarms, tasks
from crawl2llm.stages.report.comparison_table import WORDS, difference_text, measure_name
from crawl2llm.stages.report.model_table import accuracy_text
from crawl2llm.stages.report.models import is_trained, model_title
from crawl2llm.stages.report.page import (
    NARROW,
    NOTHING,
    format_bytes,
    format_duration,
    format_integer,
    format_short,
    format_significant,
)

SHOWN = 100  # characters of what a model goes on with


def summary_lines(counts: dict[str, Any], seconds: float | None, page: Path) -> list[tuple[str, str]]:
    """(what, its numbers with their units) from the report's counts.json and the seconds of all tasks."""
    models, late = counts.get("models") or [], counts.get("outdated") or {}
    pretrain = models[0]["training"] if models else None
    begins_published = models and models[0]["step"] == PUBLISHED_STEP
    rows = [
        ("report", str(page)),
        ("corpus", corpus_text(counts)),
        *(published_rows(models) if begins_published else [("trained", pretraining_text(pretrain, late))]),
        *((model_title(model["name"]).lower(), model_text(model, late)) for model in models),
        *(("export", export_line(export)) for export in counts.get("exports") or []),
        *tasks.task_lines(counts),
        *comparison_lines(counts),
        *continuation_lines(counts),
        ("time", f"{format_duration(seconds)} over all tasks" if seconds else NOTHING),
    ]
    if pretrain:
        rows.append(("talk", "make serve (crawl2llm serve): a page to chat with the models in"))
    rows += [("note", sentence) for sentence in alarms.sentences_with_advice(counts.get("alarms"))]
    rows += [("note", text) for text in merged_notes(counts.get("notes") or [])]
    for row in counts.get("missing") or []:
        rows.append(("missing", f"{row['step']}: {row['words']}" + (f" ({row['log']})" if row["log"] else "")))
    rows += [("damaged", f"{file}: {problem}") for file, problem in counts.get("damaged") or []]
    rows += [("outdated", f"{step}: {text}") for step, text in late.items()]
    if other_steps := counts.get("other"):
        rows.append(("outdated", f"made under other settings, code or input: {', '.join(other_steps)}"))
    return rows


def outdated_mark(late: Container[str], *steps: str) -> str:
    """What follows a number of results that no longer belong to the others. late: the steps whose results do not."""
    late_steps = [step for step in steps if step in late]
    return f" (outdated, see below: {', '.join(late_steps)})" if late_steps else ""


def corpus_text(counts: dict[str, Any]) -> str:
    """How large the corpus is, and from how many records it comes."""
    train, records = nested_value(counts, "corpus", "train"), counts.get("documents_read")
    held_out, documents = nested_value(counts, "corpus", "validation", "documents"), nested_value(train, "documents")
    held_out_text = f" to train on, {format_integer(held_out)} held out" if held_out else ""
    return (
        f"{format_integer(documents)} {singular_or_plural(documents, 'document')}{held_out_text}, "
        f"{format_bytes(nested_value(train, 'bytes'))} of text, "
        f"{format_short(nested_value(counts, 'tokens', 'train', 'tokens'))} tokens; from {format_integer(records)} crawl "
        f"{singular_or_plural(records, 'record')}{outdated_mark(counts.get('outdated') or {}, 'corpus.write', 'tokenize.encode')}"
    )


def pretraining_text(summary: dict[str, Any] | None, late: Container[str]) -> str:
    """What was trained from scratch, and on how much. summary: of the pre-training; None before it has ended."""
    if not summary:
        return "no model yet"
    steps = summary.get("steps")
    return (
        f"{format_short(parameter_count(summary))} parameters on {format_short(summary.get('tokens'))} tokens, "
        f"{format_integer(steps)} {singular_or_plural(steps, 'step')}{outdated_mark(late, 'pretrain.train')}"
    )


def model_text(model: dict[str, Any], late: Container[str]) -> str:
    """What a model was measured to be, or why it was not."""
    if not (evaluation := model["evaluation"]):
        return reward_text(model)
    if not is_trained(model):
        return f"not trained, this is the model {model['from']} (see the note)"
    questions = nested_value(evaluation, "questions")
    bits = format_significant(nested_value(evaluation, "heldout_text", "bits_per_byte"))
    accuracy = accuracy_text(questions)
    if accuracy != NOTHING:
        accuracy += f" right (chance {accuracy_text({'acc': nested_value(questions, 'chance')})})"
    size, size_before = (nested_value(model, "training", key) for key in ("bytes", "bytes_before"))
    if size_before and size_before != size:
        bits = f"{format_bytes(size)} instead of {format_bytes(size_before)}, {bits}"
    return f"{bits} bits per held-out byte, questions {accuracy}{outdated_mark(late, 'evaluate.model')}"


def published_rows(models: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Of a run without a model from scratch: the published ones that it begins with, and what the others were trained on."""
    for model in models:
        facts = model["training"]
        if model["step"] == PUBLISHED_STEP:
            what = (
                f"published as {facts['name']}, {format_short(facts['parameters'])} parameters"
                if facts
                else "not read yet"
            )
            yield "begins with", f"{model['name']}, {what}"
    for model in models:
        pairs, tokens, steps = (nested_value(model, "training", key) for key in ("pairs", "tokens", "steps"))
        if steps:
            what = f"{format_short(tokens)} tokens" if pairs is None else format_quantity(pairs, "pair")
            yield "trained", f"{model['name']} from {model['from']}, on {what} in {format_quantity(steps, 'step')}"


def merged_notes(rows: list[dict[str, Any]]) -> list[str]:
    """What steps say about themselves, each text once with all steps that say it."""
    steps: dict[str, list[str]] = {}
    for row in rows:
        steps.setdefault(row["text"], []).append(row["step"])
    return [f"{', '.join(names)}: {text}" for text, names in steps.items()]


def export_line(export: dict[str, Any]) -> str:
    """An export's folder, its model, and the size of each of its files."""
    files = ", ".join(f"{file['type']} {format_bytes(file['bytes'])}" for file in export["files"])
    return f"{export['folder']}, of {model_title(str(export['of'])).lower()}: {files}"


def comparison_lines(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A line for each model and the one that it is made from: on what the second is better or worse, and how many measures do not tell them
    apart. The page has all pairs.
    """
    parents = {model["name"]: model.get("from") for model in counts.get("models") or []}
    for pair in counts.get("compared") or []:
        if pair["first"] != parents.get(pair["second"]) and pair["second"] != parents.get(pair["first"]):
            continue
        by_verdict: dict[str, list[str]] = {verdict: [] for verdict in WORDS}
        for row in pair["measures"]:
            name, verdict = row["measure"], row["verdict"]
            by_verdict[verdict].append(f"{measure_name(name).lower()} ({difference_text(row['difference'], name)})")
        parts = [f"{WORDS[verdict]} on {', '.join(names)}" for verdict, names in by_verdict.items() if names]
        if not parts:
            continue
        if unclear := by_verdict.pop("unclear"):
            parts[-1] = f"{WORDS['unclear']} on {format_quantity(len(unclear), 'measure')}"
        yield (
            "compared",
            f"{model_title(pair['second']).lower()} with {model_title(pair['first']).lower()}: {'; '.join(parts)}",
        )


def continuation_lines(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each prompt, and below it a line for what each model goes on with."""
    for row in counts.get("continued") or []:
        yield "prompt", row["prompt"]
        for name, text in row["outputs"]:
            yield f"  {name.lower()}", f"… {shorten(text, SHOWN, placeholder=' …')}"


def print_lines(rows: list[tuple[str, str]]) -> None:
    """Print the lines."""
    for name, text in rows:
        print_line(f"{name:<11} {text}".replace(NARROW, " "))


def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser("python -m crawl2llm.stages.report.summary", __doc__, "--results results/main")
    parser.add_argument("--results", type=Path, default=Path("results/main"), help="a variant's results")
    parser.add_argument("--open", action="store_true", help="open the report in a browser")
    args = parser.parse_args(argv)
    folder = args.results / "report" / "render"
    try:
        counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return command_line.print_error(
            f"no report in {args.results} yet; run `make demo`, or `snakemake --profile profiles/local`. "
            "`crawl2llm report` shows what is there so far"
        )
    except (OSError, ValueError) as error:
        return command_line.print_error(f"{folder / 'counts.json'}: {error}; run `make report`")
    page = folder / "report.html"
    print_lines(summary_lines(counts, total_seconds(args.results), page))
    compare_page = args.results.parent / "main/report/compare/compare.html"
    if compare_page.exists():
        print_lines([("variants", f"all compared: {compare_page}")])
    if args.open and not webbrowser.open(page.absolute().as_uri()):
        return command_line.print_error(f"no browser is available: open {page.absolute()}")
    return 0


def total_seconds(results: Path) -> float | None:
    """Seconds of all tasks that the report was made from, as it shows them; None if nothing was measured."""
    try:
        manifest = Manifest.read_unchecked(results / "report/render/manifest.json")
    except ManifestError:
        return None
    files = [task_costs.benchmark_path(path) for _, path, _ in Inputs(results.parent).inputs_of(manifest)]
    measured = [row for path in work_benchmarks(files) if path.exists() for row in read_benchmark(path)]
    return sum(row.get("s", 0.0) for row in measured) if measured else None


def reward_text(model: dict[str, Any]) -> str:
    """What is said of a model without an evaluation: of a reward model how often it is right."""
    after = nested_value(model, "training", "heldout_accuracy_after")
    if model["step"] != REWARD_STEP or after is None:
        return "not evaluated"
    error = nested_value(model, "training", "heldout_accuracy_stderr")
    about = "" if error is None else f" ± {100 * error:.1f} %"
    return f"reward model, {100 * after:.1f} %{about} of held-out pairs in the right order (chance 50.0 %)"


if __name__ == "__main__":
    raise SystemExit(main())
