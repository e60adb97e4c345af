"""The answer of `crawl2llm whatif` in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crawl2llm.commands.trace.document import shorten_line
from crawl2llm.core.phrases import first_few

Row = dict[str, Any]
MOST_KEYS = 5  # keys of a step that was made with other settings


def _value_text(value: Any) -> str:
    return shorten_line(json.dumps(value, ensure_ascii=False), 60)


def whatif_lines(report: Row) -> Iterator[str]:
    """The answer as text."""
    for step, differ in report["other_settings"].items():
        changes = [f"{key}: {_value_text(was)} → {_value_text(now)}" for key, (was, now) in differ.items()]
        yield (
            f"{step} was made with other settings than this config has ({first_few(changes, MOST_KEYS)}): "
            "is it the config that the run was started with? --configfile names it"
        )
    yield f"{'':24} {'in':>10} {'kept':>10}   {'in':>10} {'kept':>10}"
    yield f"{'filter':24} {'before':>10} {'':>10}   {'after':>10}"
    for step_row in report["steps"]:
        before, after = step_row["before"], step_row["after"]
        edited = "edited" if step_row["edited"] else ""
        unsure = "" if step_row["exact"] else "estimated from the old scores; a run gives the exact number"
        mark = "; ".join(filter(None, [edited, unsure]))
        more = f" and {step_row['perhaps']:,} that come back" if step_row["perhaps"] else ""
        yield (
            f"{step_row['step']:24} {before['in']:>10,} {before['kept']:>10,}   {after['in']:>10,} {after['kept']:>10,}   {mark}{more}"
        ).rstrip()
        if step_row["edited"]:
            rules = sorted({*before["dropped"], *after["dropped"]})
            yield from (
                f"    {rule}: {before['dropped'].get(rule, 0):,} → {after['dropped'].get(rule, 0):,} dropped"
                for rule in rules
                if before["dropped"].get(rule, 0) != after["dropped"].get(rule, 0)
            )
            for title, key in (("source", "by_source"), ("language", "by_language")):
                differ = [
                    f"{name or '(none)'} {before[key].get(name, 0):,} → {after[key].get(name, 0):,}"
                    for name in sorted({*before[key], *after[key]})
                    if before[key].get(name, 0) != after[key].get(name, 0)
                ]
                if differ:
                    yield f"    kept by {title}: {', '.join(differ)}"
    corpus = report["corpus"]
    yield f"documents of the corpus: {corpus['before']:,} → {corpus['after']:,}" + (
        f", and up to {corpus['perhaps']:,} that come back" if corpus["perhaps"] else ""
    )
    if corpus["tokens_before"]:
        yield f"tokens of the corpus: {corpus['tokens_before']:,} → {corpus['tokens_after']:,}, without those that come back"
    for step, both in report["samples"].items():
        for direction, rows in both.items():
            if rows:
                yield f"{step}, nearest the threshold that would {'go' if direction == 'gone' else 'come back'}:"
            for row in rows:
                value = row["value"]
                comparison = f": {value:.6g} (threshold {row['threshold']:.6g})" if value is not None else ""
                yield f"  {row['rule']}{comparison}  {row['url']}"
                yield f"    {shorten_line(row['text'], 110)}"
