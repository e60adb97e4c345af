"""The answers of `crawl2llm trace` in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from crawl2llm.commands.trace import document, spikes
from crawl2llm.commands.trace.results import Results
from crawl2llm.core.console import format_quantity

Row = dict[str, Any]
MOST_LINES = 20  # documents, hosts or steps in a text; --json has all
MOST_STALE = 5  # steps of other settings that a text names
TEXT_CHARACTERS = 100  # characters of a text that are shown


def numbers_text(steps: Sequence[int]) -> str:
    """`3, 17 and 40`; of many the first, and how many more."""
    if not steps:
        return "none"
    texts = [f"{step:,}" for step in steps[:MOST_LINES]]
    return ", ".join(texts) + (f" and {len(steps) - MOST_LINES:,} more" if len(steps) > MOST_LINES else "")


def journey_lines(report: Row) -> Iterator[str]:
    """A journey as text."""
    for dropped in report["dropped"]:
        yield f"dropped by ingest.extract, {dropped['shard']}: {dropped['reason']}" + (
            f" ({dropped['detail']})" if dropped["detail"] else ""
        )
        yield f"  record {dropped['record_id']} of {dropped['file']}"
    for journey in report["documents"]:
        first = journey["steps"][0]
        yield f"document {journey['id']}"
        yield f"  {first['url'] or '(no address)'}"
        place = f"shard {first['shard']}, row {first['row']:,}"
        yield f"  source {first['source']}, {place}, {first['characters']:,} characters, {first['date'] or 'no date'}"
        for step_row in journey["steps"][1:]:
            yield from map("  {}".format, step_lines(step_row, journey))
        if not is_followed_to_end(journey):
            yield "  that is all of it so far"


def is_followed_to_end(journey: Row) -> bool:
    """Whether a document was dropped, held out, or followed to the training."""
    last = journey["steps"][-1]
    return not last.get("kept", True) or last["step"] == "pretrain.train" or last.get("split", "train") != "train"


def step_lines(step_row: Row, journey: Row) -> Iterator[str]:
    """One step of a journey as text."""
    step = step_row["step"]
    if step == "corpus.split":
        yield f"{step:22} {step_row.get('split', 'dropped')}" + (
            f", duplicate of {step_row['duplicate_of']}" if "duplicate_of" in step_row else ""
        )
    elif step == "tokenize.encode":
        yield (
            f"{step:22} {step_row['tokens']:,} tokens from {step_row['offset']:,} on of {step_row['shard']}:{step_row['source']} "
            f"(stream {step_row['stream'][0]:,} to {step_row['stream'][1]:,})"
        )
    elif step == "pretrain.train":
        first, last = step_row["of_steps"]
        yield f"{step:22} read at step {numbers_text(step_row['read_at'])}, of {first:,} to {last:,}"
    else:
        yield f"{step:22} " + ("kept" if step_row["kept"] else "dropped") + verdict_text(step_row)
        for span in step_row.get("spans", [])[:MOST_LINES]:
            put = f" → {span['replacement']!r}" if span["replacement"] else ""
            yield f"  {span['rule']}: {document.shorten_line(span['before'], 30)}[{document.shorten_line(span['removed'], 60)}]{put}"
        if keeper := step_row.get("keeper"):
            yield f"  keeper {keeper['id']} {keeper.get('url', '')}"


def verdict_text(step_row: Row) -> str:
    """` by words_min: 20 (threshold 50)`, and other rules that would drop it."""
    out = f" by {step_row['rule']}" if "rule" in step_row else ""
    if "value" in step_row:
        out += f": {step_row['value']:.6g} (threshold {step_row['threshold']:.6g})"
    if "similarity" in step_row:
        out += f", similarity {step_row['similarity']:.3f}"
    if "detail" in step_row:
        out += f": {step_row['detail']}"
    other_rules = [rule for rule in step_row.get("rules", []) if rule != step_row.get("rule")]
    return out + (f"; also {', '.join(other_rules)}" if other_rules else "")


def batch_lines(report: Row) -> Iterator[str]:
    """The documents of a training step as text."""
    spike_rows = report.get("spikes", [])
    outlying = [row for row in spike_rows if row["deviations"] > spikes.OUTLYING]
    if spike_rows and not outlying:
        yield f"no step stands out ({spikes.OUTLYING:g} standard deviations); the largest:"
    for row in outlying or spike_rows:
        side = "above" if row["deviations"] >= 0 else "below"
        yield (
            f"step {row['step']:,}: loss {row['loss']:.4f}, {abs(row['deviations']):.1f} standard deviations {side} the mean of the "
            "steps before"
        )
    in_two_windows = len(report["windows"]) * report["window"] - report["tokens"]
    yield (
        f"step {report['step']:,}: {format_quantity(report['tokens'], 'token')} of "
        f"{format_quantity(len(report['documents']), 'document')}, in "
        f"{format_quantity(len(report['windows']), 'window')} of {report['window']:,}"
        + (f" ({in_two_windows:,} are in two windows)" if in_two_windows else "")
    )
    for row in report["documents"][:MOST_LINES]:
        yield f"  {row['tokens']:>7,}  {row['id']}  {row['url'] or '(no address)'}"
        yield f"           {document.shorten_line(row['text'], TEXT_CHARACTERS)}"
    if len(report["documents"]) > MOST_LINES:
        yield f"  … {len(report['documents']) - MOST_LINES:,} more: --json lists all"


def until_lines(report: Row) -> Iterator[str]:
    """What was read until a step as text."""
    yield (
        f"until step {report['until']:,}: {format_quantity(report['tokens_read'], 'token')} read in "
        f"{format_quantity(report['windows'], 'window')} of {report['window']:,}, "
        f"{report['distinct_tokens']:,} different ones of {format_quantity(report['documents'], 'document')}"
    )
    for grouping in ("source", "host"):
        yield f"  by {grouping}:"
        for name, counts in list(report[f"by_{grouping}"].items())[:MOST_LINES]:
            yield f"    {counts['tokens']:>12,} tokens  {counts['documents']:>8,} documents  {name or '(none)'}"


def answer_lines(report: Row) -> Iterator[str]:
    """An answer as text."""
    if "until" in report:
        yield from until_lines(report)
    elif "step" in report:
        yield from batch_lines(report)
    elif "tokens" in report:
        document_row = report["document"]
        yield f"{report['tokens']}: {document_row['id']}  {document_row['url'] or '(no address)'}"
        yield f"  {document.shorten_line(document_row['text'], TEXT_CHARACTERS)}"
        yield f"  read at step {numbers_text(report['read_at'])}"
    else:
        yield from journey_lines(report)


def stale_lines(stale: Sequence[str]) -> Iterator[str]:
    """What is not of today's settings as text."""
    for line in stale[:MOST_STALE]:
        yield f"not of today's settings: {line}"
    if len(stale) > MOST_STALE:
        yield f"and {len(stale) - MOST_STALE:,} more; is this the config that the run was started with? --configfile names it"


def duplicate_text_lines(results: Results, report: Row) -> Iterator[str]:
    """Of each dropped duplicate its text and its keeper's, side by side."""
    for journey in report["documents"]:
        for step_row in journey["steps"]:
            if "text" in step_row.get("keeper", {}):
                texts = document.find_documents(results, journey["id"])[0][0]["text"]
                yield f"  {'this document':56}   keeper {step_row['keeper']['id']}"
                yield from (f"  {line}" for line in document.side_by_side(texts, step_row["keeper"]["text"]))
