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

from crawl2llm.chain import command_line, filter_order, skip_pandas, steps
from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings
from crawl2llm.chain.project import Project
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.step import DOCUMENTS, EDITS_BEFORE
from crawl2llm.commands.trace.results import Results, add_options, matching_rows, open_results
from crawl2llm.commands.whatif import select, words
from crawl2llm.core import record
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json
from crawl2llm.core.nested_dicts import flatten, lookup, merge_dicts, nest_value
from crawl2llm.formats.documents import open_parquet
from crawl2llm.workflow.project_checks import check_configs

Row = dict[str, Any]
SAMPLES = 5
# Filters whose verdict on a document depends on which others there are.
JOINT_FILTERS = ("boilerplate", "dedup", "paragraphs", "substrings", "quality")


def apply_edits(results: Results, edits: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(the config under the edits, the select steps whose settings they change). edits: `key=value`, values as YAML.

    Raises InputError for what is no edit, or changes more than select steps, and ConfigError for a key or value that the schema refuses.
    """
    tree: dict[str, Any] = {}
    for word in edits:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(
                f"{word!r} is not an edit: write KEY=VALUE, such as heuristics.select.gopher_quality.words_min=30"
            )
        step = ".".join(key.split(".")[:2])
        if not step.endswith(".select") or step not in steps.STEPS:
            known_steps = ", ".join(f"{name}.select" for name in filter_order.used_filters(results.config))
            raise InputError(
                f"{key} is no key of a select step, so its results would have to be made: crawl2llm plan says what runs. Steps that can be "
                f"asked are {known_steps}"
            )
        if steps.stage_of(step) not in filter_order.used_filters(results.config):
            raise InputError(
                f"{key}: the run does not use {steps.stage_of(step)}: filters is {results.config['filters']}"
            )
        try:
            tree = merge_dicts(tree, nest_value(key, yaml.safe_load(value)))
        except yaml.YAMLError as error:
            problem = " ".join(str(getattr(error, "problem", None) or error).split())
            raise InputError(f"{word!r}: not a value in YAML: {problem}") from error
    whole = configuration.validate(merge_dicts(results.config, tree), "the edit")
    check_configs(Project(whole, results.project.held))
    changed = [
        step
        for step in filter_order.verdict_steps(filter_order.used_filters(whole))[1:]
        if lookup(whole, step) != lookup(results.config, step)
    ]
    return whole, changed


def read_columns(path: Path, *names: str) -> pa.Table:
    """Columns of a table. Not by pyarrow's read_table, which loads a library for folders of tables that takes longer than the rest."""
    with open_parquet(path) as file:
        return file.read(list(names))


def read_verdicts(path: Path) -> dict[str, Row]:
    """id → verdict of a table: `kept, rule, value, threshold`. Held in memory: one shard's."""
    table = read_columns(path, "id", "kept", "rule", "value", "threshold")
    return {row["id"]: row for row in table.to_pylist()}


def source_and_language(results: Results, shard: str) -> dict[str, tuple[str, str]]:
    """id → (source, language) of a shard's documents; the language is "" where none was found."""
    path = results.shard_table(DOCUMENTS, shard)
    assert path is not None
    table = read_columns(path, "id", "source")
    source_by_id = dict(zip(table["id"].to_pylist(), table["source"].to_pylist(), strict=True))
    language_by_id: dict[str, str] = {}
    if labels := results.shard_table("language.score", shard):
        label_table = read_columns(labels, "id", "language")
        language_by_id = dict(zip(label_table["id"].to_pylist(), label_table["language"].to_pylist(), strict=True))
    return {name: (source, language_by_id.get(name) or "") for name, source in source_by_id.items()}


def tokens_by_id(results: Results, shard: str) -> dict[str, int]:
    """id → tokens of a shard's documents that are in the corpus."""
    encoded = results.read_manifest("tokenize.encode", shard)
    out: dict[str, int] = {}
    for name in sorted(encoded.files if encoded else ()):
        if encoded and name.endswith(".docs.parquet"):
            table = read_columns(encoded.file(name), "id", "tokens")
            out |= dict(zip(table["id"].to_pylist(), table["tokens"].to_pylist(), strict=True))
    return out


def changed_settings(results: Results) -> dict[str, dict[str, list[Any]]]:
    """By select step: key → [what its results were made with, what the config has], where these differ; by the first task's record."""
    changes_by_step = {}
    for step in filter_order.verdict_steps(filter_order.used_filters(results.config))[1:]:
        path = results.manifest_path(step, steps.result_ids(step, results.config)[0])
        made_with = record.read(path).get("fingerprint", {}).get("config")
        if made_with is None:
            continue
        today = json.loads(canonical_json(tracked_settings(step, results.config)))
        defaults = settings_class(step)().model_dump(
            by_alias=True
        )  # a fingerprint lacks keys `unless default` that have it
        was, now = (flatten(merge_dicts(defaults, each)) for each in (made_with, today))
        if differ := {key: [was.get(key), now.get(key)] for key in {**was, **now} if was.get(key) != now.get(key)}:
            changes_by_step[step] = differ
    return changes_by_step


class Step:
    """What a filter does before and after the edits, over all shards."""

    def __init__(self, step: str, is_edited: bool, is_exact: bool) -> None:
        self.step, self.is_edited, self.exact = step, is_edited, is_exact
        self.before, self.after = _Counts(), _Counts()
        self.may_come_back = 0  # documents that came back in a filter before
        self.gone: list[Row] = []
        self.back: list[Row] = []
        self.changes = Counter[str]()

    def compare_verdicts(self, name: str, old: Row, new: Row, samples: int, shard: str) -> None:
        """Note a document whose verdict is another: `gone` or `back`; the nearest to their thresholds are kept as samples."""
        if old["kept"] == new["kept"]:
            return
        direction, verdict = ("gone", new) if old["kept"] else ("back", old)
        self.changes[direction] += 1
        samples_held = getattr(self, direction)
        samples_held.append({**verdict, "shard": shard})
        samples_held.sort(key=lambda row: (_threshold_distance(row), row["id"]))
        del samples_held[samples:]

    def to_row(self) -> Row:
        return {
            "step": self.step,
            "edited": self.is_edited,
            "exact": self.exact,
            "before": self.before.to_row(),
            "after": self.after.to_row(),
            "perhaps": self.may_come_back,
            "gone": self.changes["gone"],
            "back": self.changes["back"],
        }


def _threshold_distance(row: Row) -> float:
    """How far a value is from its threshold, in thresholds; a rule that compares no number is the farthest."""
    if row["value"] is None or row["threshold"] is None:
        return float("inf")
    return abs(row["value"] - row["threshold"]) / max(abs(row["threshold"]), 1e-9)


class _Counts:
    """Documents into a filter, kept, and dropped by rule; kept by source and language."""

    def __init__(self) -> None:
        self.total, self.kept, self.dropped = 0, 0, Counter[str]()
        self.by_source, self.by_language = Counter[str](), Counter[str]()

    def add(self, verdict: Row, about: tuple[str, str]) -> None:
        self.total += 1
        if not verdict["kept"]:
            self.dropped[verdict["rule"]] += 1
            return
        self.kept += 1
        self.by_source[about[0]] += 1
        self.by_language[about[1]] += 1

    def to_row(self) -> Row:
        by = {"by_source": self.by_source, "by_language": self.by_language}
        return {
            "in": self.total, "kept": self.kept, "dropped": dict(sorted(self.dropped.items())),
            **{name: dict(counter.most_common()) for name, counter in by.items()},
        }  # fmt: skip


def step_exactness(
    verdict_steps: Sequence[str], changed: Sequence[str], config: dict[str, Any]
) -> Iterator[tuple[str, bool]]:
    """(step, whether its verdicts on the documents that reach it are those of a run) of select steps in their order.

    Not where they depend on which other documents there are, nor where they read the text that an edited filter before them leaves.
    """
    filters = [steps.stage_of(step) for step in verdict_steps]
    behind = False
    for step, stage in zip(verdict_steps, filters, strict=True):
        together = stage in JOINT_FILTERS or (stage == "heuristics" and steps.is_used("heuristics.calibrate", config))
        reads = any(EDITS_BEFORE in filter_facts.needs for filter_facts in filter_order.FILTERS[stage].steps.values())
        other_text = reads and not set(changed).isdisjoint(filter_order.edit_steps(filters, stage))
        yield step, not other_text and not (behind and together)
        behind = behind or step in changed


def whatif_report(results: Results, edits: Sequence[str], samples: int = SAMPLES) -> Row:
    """What `main` tells."""
    config, changed = apply_edits(results, edits)
    verdict_steps = filter_order.verdict_steps(filter_order.used_filters(config))[1:]
    filter_steps = [
        Step(step, step in changed, exact) for step, exact in step_exactness(verdict_steps, changed, config)
    ]
    total = {"before": 0, "after": 0, "perhaps": 0, "tokens_before": 0, "tokens_after": 0}
    with tempfile.TemporaryDirectory() as name:
        tables_by_step = {step: select.verdict_tables(results, config, step, Path(name) / step) for step in changed}
        for shard in results.shards:
            labels, sizes = source_and_language(results, shard), tokens_by_id(results, shard)
            first = results.shard_table(filter_order.FIRST_VERDICTS, shard)
            if first is None:
                raise InputError(
                    f"{results.manifest_path(filter_order.FIRST_VERDICTS)} is not there: no document was judged yet"
                )
            old = {row["id"] for row in read_verdicts(first).values() if row["kept"]}
            new, perhaps = set(old), set[str]()
            for filter_step in filter_steps:
                table = results.shard_table(filter_step.step, shard)
                if table is None:
                    raise InputError(
                        f"{results.manifest_path(filter_step.step, shard)} is not there: run the workflow up to {filter_step.step} first"
                    )
                verdicts_before = read_verdicts(table)
                verdicts_now = (
                    read_verdicts(tables_by_step[filter_step.step][shard]) if filter_step.is_edited else verdicts_before
                )
                filter_step.may_come_back += len(perhaps)
                for key, verdict in verdicts_before.items():
                    filter_step.before.add(verdict, labels[key])
                    if key in new:
                        filter_step.after.add(verdicts_now[key], labels[key])
                        filter_step.compare_verdicts(key, verdict, verdicts_now[key], samples, shard)
                old = {key for key, verdict in verdicts_before.items() if verdict["kept"]}
                alive = {key for key in new if key in verdicts_now and verdicts_now[key]["kept"]}
                # What was dropped here, and is not any more, has no verdict in the filters behind.
                perhaps |= {key for key in alive if not verdicts_before[key]["kept"]}
                new = alive - perhaps
            total["before"] += len(old)
            total["after"] += len(new)
            total["perhaps"] += len(perhaps)
            total["tokens_before"] += sum(sizes.get(key, 0) for key in old)
            total["tokens_after"] += sum(sizes.get(key, 0) for key in new)
    return {
        "edits": list(edits),
        "other_settings": changed_settings(results),
        "steps": [filter_step.to_row() for filter_step in filter_steps],
        "corpus": total,
        "samples": {
            filter_step.step: {
                "gone": sample_rows(results, filter_step.gone),
                "back": sample_rows(results, filter_step.back),
            }
            for filter_step in filter_steps
            if filter_step.is_edited
        },
    }


def sample_rows(results: Results, rows: list[Row]) -> list[Row]:
    """Samples with their addresses and texts."""
    out = []
    for row in rows:
        path = results.shard_table(DOCUMENTS, row["shard"])
        assert path is not None
        (document,) = matching_rows(path, "id", [row["id"]], ["url", "source", "text"])
        out.append({**row, "url": document["url"], "source": document["source"], "text": document["text"][:400]})
    return out


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    parser = command_line.command_parser(
        "crawl2llm whatif", __doc__, "heuristics.select.gopher_quality.words_min=30 quality.select.keep_fraction=0.5"
    )
    parser.add_argument("edits", nargs="+", metavar="KEY=VALUE", help="keys of select steps with other values, as YAML")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"documents shown in each direction ({SAMPLES})")
    add_options(parser)
    args = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        results = open_results(args, stack)  # which loads plug-ins, and these may need pandas
        stack.enter_context(skip_pandas.without_pandas(filter_order.FIRST_VERDICTS))
        report = whatif_report(results, args.edits, args.samples)
    return command_line.print_findings(args, report, lambda: words.whatif_lines(report))


if __name__ == "__main__":
    raise SystemExit(main())
