"""The answer of `crawl2llm whatif` in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crawl2llm.commands.trace.document import cut

Row = dict[str, Any]
NAMED = 5  # keys of a step that was made with other settings


def _written(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False), 60)


def lines(found: Row) -> Iterator[str]:
    """The answer as text."""
    for step, differ in found["other_settings"].items():
        some = [f"{key}: {_written(was)} → {_written(now)}" for key, (was, now) in list(differ.items())[:NAMED]]
        yield (
            f"{step} was made with other settings than this config has ({', '.join(some + ['…'] * (len(differ) > NAMED))}): "
            "is it the config that the run was started with? --configfile names it"
        )
    yield f"{'':24} {'in':>10} {'kept':>10}   {'in':>10} {'kept':>10}"
    yield f"{'filter':24} {'before':>10} {'':>10}   {'after':>10}"
    for one in found["steps"]:
        before, after = one["before"], one["after"]
        marks = ["edited"] * one["edited"] + ["by the scores of before: sure after a run"] * (not one["exact"])
        mark = "; ".join(marks)
        more = f" and {one['perhaps']:,} that come back" if one["perhaps"] else ""
        yield (
            f"{one['step']:24} {before['in']:>10,} {before['kept']:>10,}   {after['in']:>10,} {after['kept']:>10,}   {mark}{more}"
        ).rstrip()
        if one["edited"]:
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
    of = found["corpus"]
    yield f"documents of the corpus: {of['before']:,} → {of['after']:,}" + (
        f", and up to {of['perhaps']:,} that come back" if of["perhaps"] else ""
    )
    if of["tokens_before"]:
        yield f"tokens of the corpus: {of['tokens_before']:,} → {of['tokens_after']:,}, without those that come back"
    for step, both in found["samples"].items():
        for what, rows in both.items():
            if rows:
                yield f"{step}, nearest the threshold that would {'go' if what == 'gone' else 'come back'}:"
            for row in rows:
                said = f": {row['value']:.6g} (threshold {row['threshold']:.6g})" if row["value"] is not None else ""
                yield f"  {row['rule']}{said}  {row['url']}"
                yield f"    {cut(row['text'], 110)}"
