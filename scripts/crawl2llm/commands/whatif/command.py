"""What other thresholds would keep, from the scores that are there: documents in and out of every filter, both ways, with samples.

Keys are those of select steps, as in the config. An edited filter is judged by its own program, so its counts are those that a run has for
the same documents. Documents that come back have no scores in the filters behind: what becomes of them there needs a run, and they are
counted apart. Filters that judge a document by others (dedup, quality, paragraphs, …) are taken as they were where they stand behind an
edited one. Changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from crawl2llm.chain import command_line, config_schema, filter_order, skip_pandas, steps
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import settings
from crawl2llm.chain.project import Project
from crawl2llm.commands.trace.results import Results, matching, opened_results, options
from crawl2llm.commands.whatif import select, words
from crawl2llm.core import record
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical
from crawl2llm.core.nested_dicts import flat, lookup, merged, placed
from crawl2llm.formats.documents import opened
from crawl2llm.workflow.project_checks import check_configs

Row = dict[str, Any]
SAMPLES = 5
# Filters whose verdict on a document depends on which others there are.
TOGETHER = ("boilerplate", "dedup", "paragraphs", "substrings", "quality")


def edited(results: Results, given: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(the config under the edits, the select steps whose settings they change). given: `key=value`, values as YAML.

    Raises InputError for what is no edit, or changes more than select steps, and ConfigError for a key or value that the schema refuses.
    """
    tree: dict[str, Any] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(
                f"{word!r} is no edit: write KEY=VALUE, such as heuristics.select.gopher_quality.words_min=30"
            )
        step = ".".join(key.split(".")[:2])
        if not step.endswith(".select") or step not in steps.STEPS:
            known = ", ".join(f"{name}.select" for name in filter_order.filters(results.config))
            raise InputError(
                f"{key} is no key of a select step, so its results would have to be made: crawl2llm plan says what runs. Steps that can be "
                f"asked are {known}"
            )
        if steps.stage_of(step) not in filter_order.filters(results.config):
            raise InputError(
                f"{key}: the run does not use {steps.stage_of(step)}: filters is {results.config['filters']}"
            )
        try:
            tree = merged(tree, placed(key, yaml.safe_load(value)))
        except yaml.YAMLError as error:
            said = " ".join(str(getattr(error, "problem", None) or error).split())
            raise InputError(f"{word!r}: not a value in YAML: {said}") from error
    whole = configuration.validate(merged(results.config, tree), "the edit")
    check_configs(Project(whole, results.project.held))
    changed = [
        step
        for step in filter_order.verdicts(filter_order.filters(whole))[1:]
        if lookup(whole, step) != lookup(results.config, step)
    ]
    return whole, changed


def columns(path: Path, *names: str) -> pa.Table:
    """Columns of a table. Not by pyarrow's read_table, which loads a library for folders of tables that takes longer than the rest."""
    with opened(path) as file:
        return file.read(list(names))


def judged(path: Path) -> dict[str, Row]:
    """id → verdict of a table: `kept, rule, value, threshold`. Held in memory: one shard's."""
    table = columns(path, "id", "kept", "rule", "value", "threshold")
    return {row["id"]: row for row in table.to_pylist()}


def facts(results: Results, shard: str) -> dict[str, tuple[str, str]]:
    """id → (source, language) of a shard's documents; the language is "" where none was found."""
    path = results.table(steps.DOCUMENTS, shard)
    assert path is not None
    table = columns(path, "id", "source")
    found = dict(zip(table["id"].to_pylist(), table["source"].to_pylist(), strict=True))
    named: dict[str, str] = {}
    if labels := results.table("language.score", shard):
        known = columns(labels, "id", "language")
        named = dict(zip(known["id"].to_pylist(), known["language"].to_pylist(), strict=True))
    return {name: (source, named.get(name) or "") for name, source in found.items()}


def tokens(results: Results, shard: str) -> dict[str, int]:
    """id → tokens of a shard's documents that are in the corpus."""
    made = results.made("tokenize.encode", shard)
    out: dict[str, int] = {}
    for name in sorted(made.files if made else ()):
        if made and name.endswith(".docs.parquet"):
            table = columns(made.file(name), "id", "tokens")
            out |= dict(zip(table["id"].to_pylist(), table["tokens"].to_pylist(), strict=True))
    return out


def otherwise(results: Results) -> dict[str, dict[str, list[Any]]]:
    """By select step: key → [what its results were made with, what the config has], where these differ; by the first task's record."""
    found = {}
    for step in filter_order.verdicts(filter_order.filters(results.config))[1:]:
        path = results.path(step, steps.ids(step, results.config)[0])
        held = record.read(path).get("fingerprint", {}).get("config")
        if held is None:
            continue
        today = json.loads(canonical(settings(step, results.config)))
        was, now = (flat(config_schema.completed(step, each)) for each in (held, today))
        if differ := {key: [was.get(key), now.get(key)] for key in {**was, **now} if was.get(key) != now.get(key)}:
            found[step] = differ
    return found


class Step:
    """What a filter does before and after the edits, over all shards."""

    def __init__(self, step: str, is_edited: bool, exact: bool) -> None:
        self.step, self.edited, self.exact = step, is_edited, exact
        self.before, self.after = _Counts(), _Counts()
        self.perhaps = 0  # documents that came back in a filter before
        self.gone: list[Row] = []
        self.back: list[Row] = []
        self.changes = Counter[str]()

    def compare(self, name: str, old: Row, new: Row, samples: int, shard: str) -> None:
        """Note a document whose verdict is another: `gone` or `back`; the nearest to their thresholds are kept as samples."""
        if old["kept"] == new["kept"]:
            return
        what, verdict = ("gone", new) if old["kept"] else ("back", old)
        self.changes[what] += 1
        held = getattr(self, what)
        held.append({**verdict, "shard": shard})
        held.sort(key=lambda row: (_distance(row), row["id"]))
        del held[samples:]

    def told(self) -> Row:
        return {
            "step": self.step,
            "edited": self.edited,
            "exact": self.exact,
            "before": self.before.told(),
            "after": self.after.told(),
            "perhaps": self.perhaps,
            "gone": self.changes["gone"],
            "back": self.changes["back"],
        }


def _distance(row: Row) -> float:
    """How far a value is from its threshold, in thresholds; a rule that compares no number is the farthest."""
    if row["value"] is None or row["threshold"] is None:
        return float("inf")
    return abs(row["value"] - row["threshold"]) / max(abs(row["threshold"]), 1e-9)


class _Counts:
    """Documents into a filter, kept, and dropped by rule; kept by source and language."""

    def __init__(self) -> None:
        self.number, self.kept, self.dropped = 0, 0, Counter[str]()
        self.by_source, self.by_language = Counter[str](), Counter[str]()

    def add(self, verdict: Row, about: tuple[str, str]) -> None:
        self.number += 1
        if not verdict["kept"]:
            self.dropped[verdict["rule"]] += 1
            return
        self.kept += 1
        self.by_source[about[0]] += 1
        self.by_language[about[1]] += 1

    def told(self) -> Row:
        by = {"by_source": self.by_source, "by_language": self.by_language}
        return {
            "in": self.number, "kept": self.kept, "dropped": dict(sorted(self.dropped.items())),
            **{name: dict(found.most_common()) for name, found in by.items()},
        }  # fmt: skip


def surely(used: Sequence[str], changed: Sequence[str], config: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """(step, whether its verdicts on the documents that reach it are those of a run) of select steps in their order.

    Not where they depend on which other documents there are, nor where they read the text that an edited filter before them leaves.
    """
    filters = [steps.stage_of(step) for step in used]
    behind = False
    for step, stage in zip(used, filters, strict=True):
        together = stage in TOGETHER or (stage == "heuristics" and steps.is_used("heuristics.calibrate", config))
        reads = any(filter_order.EDITS in of.needs for of in filter_order.FILTERS[stage].steps.values())
        other_text = reads and not set(changed).isdisjoint(filter_order.edits(filters, stage))
        yield step, not other_text and not (behind and together)
        behind = behind or step in changed


def answer(results: Results, given: Sequence[str], samples: int = SAMPLES) -> Row:
    """What `main` tells."""
    config, changed = edited(results, given)
    used = filter_order.verdicts(filter_order.filters(config))[1:]
    found = [Step(step, step in changed, exact) for step, exact in surely(used, changed, config)]
    total = {"before": 0, "after": 0, "perhaps": 0, "tokens_before": 0, "tokens_after": 0}
    with tempfile.TemporaryDirectory() as name:
        other = {step: select.verdicts(results, config, step, Path(name) / step) for step in changed}
        for shard in results.shards:
            about, sizes = facts(results, shard), tokens(results, shard)
            first = results.table(filter_order.FIRST, shard)
            if first is None:
                raise InputError(f"{results.path(filter_order.FIRST)} is not there: no document was judged yet")
            old = {row["id"] for row in judged(first).values() if row["kept"]}
            new, perhaps = set(old), set[str]()
            for one in found:
                table = results.table(one.step, shard)
                if table is None:
                    raise InputError(
                        f"{results.path(one.step, shard)} is not there: run the workflow up to {one.step} first"
                    )
                was = judged(table)
                now = judged(other[one.step][shard]) if one.edited else was
                one.perhaps += len(perhaps)
                for key, verdict in was.items():
                    one.before.add(verdict, about[key])
                    if key in new:
                        one.after.add(now[key], about[key])
                        one.compare(key, verdict, now[key], samples, shard)
                old = {key for key, verdict in was.items() if verdict["kept"]}
                alive = {key for key in new if key in now and now[key]["kept"]}
                # What was dropped here, and is not any more, has no verdict in the filters behind.
                perhaps |= {key for key in alive if not was[key]["kept"]}
                new = alive - perhaps
            total["before"] += len(old)
            total["after"] += len(new)
            total["perhaps"] += len(perhaps)
            total["tokens_before"] += sum(sizes.get(key, 0) for key in old)
            total["tokens_after"] += sum(sizes.get(key, 0) for key in new)
    return {
        "edits": list(given),
        "other_settings": otherwise(results),
        "steps": [one.told() for one in found],
        "corpus": total,
        "samples": {
            one.step: {what: shown(results, getattr(one, what)) for what in ("gone", "back")}
            for one in found
            if one.edited
        },
    }


def shown(results: Results, rows: list[Row]) -> list[Row]:
    """Samples with their addresses and texts."""
    out = []
    for row in rows:
        path = results.table(steps.DOCUMENTS, row["shard"])
        assert path is not None
        (of,) = matching(path, "id", [row["id"]], ["url", "source", "text"])
        out.append({**row, "url": of["url"], "source": of["source"], "text": of["text"][:400]})
    return out


@command_line.answered
def main(argv: list[str] | None = None) -> int:
    parser = command_line.described(
        "crawl2llm whatif", __doc__, "heuristics.select.gopher_quality.words_min=30 quality.select.keep_fraction=0.5"
    )
    parser.add_argument("edits", nargs="+", metavar="KEY=VALUE", help="keys of select steps with other values, as YAML")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"documents shown in each direction ({SAMPLES})")
    options(parser)
    args = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        stack.enter_context(skip_pandas.without_pandas(filter_order.FIRST))
        found = answer(opened_results(args, stack), args.edits, args.samples)
    return command_line.show(args, found, lambda: words.lines(found))


if __name__ == "__main__":
    raise SystemExit(main())
