"""The numbers of a run that depend on its input alone: `funnel.json` and `counts.json` beside the page.

Times and machines are left out, so two runs of the same input write the same two files, and can be compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from crawl2llm.chain.filter_order import FIRST_VERDICTS
from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core.manifest import pretty_json, write_atomically
from crawl2llm.formats.documents import batches
from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.report import cautions, export_table, model_table, tasks
from crawl2llm.stages.report.models import Model
from crawl2llm.stages.report.samples import rows_with_columns


def stage_counts(run: Run) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(stage, step, counts) of what takes documents away, in order. Records of ingest that ingest.check drops are ingest's too.

    The corpus is one of them where near-duplicates of validation documents were dropped, or what main holds out and is like it.
    """
    filters = [(name, f"{name}.select") for name in run.filters]
    for stage, step in [("ingest", DOCUMENTS), *filters, ("corpus", "corpus.split")]:
        counts = run.corpus_counts() if stage == "corpus" else run.counts(step)
        if counts is None or (stage == "corpus" and not counts["dropped"]):
            continue
        if stage == "ingest" and (check := run.counts(FIRST_VERDICTS)):
            ingest_drops = {reason: number for reason, number in check["dropped"].items() if number}
            dropped = {
                reason: counts["dropped"].get(reason, 0) + ingest_drops.get(reason, 0)
                for reason in counts["dropped"] | ingest_drops
            }
            counts = {**counts, "kept": check["kept"], "dropped": dropped}
        yield stage, step, counts


def stage_edits(run: Run, stage: str) -> list[dict[str, Any]]:
    """What a filter took out of texts that are in the corpus, by rule: `rule`, `documents`, `spans`, `bytes`; the largest first."""
    by_rule = run.summary("corpus.write", "edits", stage) or {}
    return sorted(
        ({"rule": rule, **counts} for rule, counts in by_rule.items()), key=lambda row: (-row["bytes"], row["rule"])
    )


def document_sizes(documents: Path) -> Iterator[tuple[str, int]]:
    """(id, bytes of UTF-8 text) of every document of a shard, without making Python strings of the texts."""
    for batch in batches(documents, ["id", "text"]):
        yield from zip(batch["id"].to_pylist(), pc.binary_length(batch["text"].cast("binary")).to_pylist(), strict=True)


def known_sizes(run: Run, shard: str) -> dict[str, int]:
    """Bytes of text of the documents of a shard, by id; none if the shard is not there."""
    sizes_by_id: dict[str, int] = {}
    manifest = run.task("ingest.extract", shard)
    if manifest:
        with run.guard_reading(manifest.folder / f"{shard}.parquet"):
            sizes_by_id = dict(document_sizes(manifest.file(f"{shard}.parquet")))
    return sizes_by_id


def dropped_bytes(run: Run) -> dict[str, dict[str, int]]:
    """Bytes of text dropped, by stage and reason. Memory: the ids and sizes of one shard.

    A corpus that writes the size of what it drops (`bytes`) is believed; else the sizes come from the documents.
    """
    total: dict[str, dict[str, int]] = {}
    for path in run.files("corpus.write", ".parquet"):
        if path.parent.name != "dropped":
            continue
        sizes_by_id: dict[str, int] = {}
        with run.guard_reading(path):
            for row in rows_with_columns(path, ("id", "stage", "rule", "bytes")):
                size = row.get("bytes")
                if size is None:
                    if not sizes_by_id:
                        sizes_by_id = known_sizes(run, path.stem)
                    size = sizes_by_id.get(row["id"], 0)
                reasons = total.setdefault(row["stage"], {})
                reasons[row["rule"]] = reasons.get(row["rule"], 0) + size
    return total


def funnel_rows(run: Run) -> list[dict[str, Any]]:
    """One row for each stage that ran: counts in, kept and dropped by reason, and bytes of text kept and dropped.

    Heuristic rules also have their `threshold`, `flagged`, all documents that they would drop, and `unique`, those that no
    other rule would; `silent` counts the rules that flag nothing. `joins` is False if a stage
    did not get what the stage before it kept.
    """
    is_whole = len(run.manifests_of("corpus.write")) == len(
        run.manifests_of("ingest.extract")
    )  # else not all dropped texts are known
    dropped_text = dropped_bytes(run) if is_whole else {}
    rules = run.summary("heuristics.select", "rules") or {}
    thresholds = run.fact("heuristics.select", "thresholds") or {}
    before: int | None = None
    text_bytes = finite_number(run.summary("ingest.extract", "text_bytes"))
    rows = []
    for stage, step, counts in stage_counts(run):
        bytes_by_reason, edit_rows = dropped_text.get(stage, {}), stage_edits(run, stage)
        if text_bytes is not None:
            removed_bytes = sum(bytes_by_reason.values()) + sum(row["bytes"] for row in edit_rows)
            text_bytes = text_bytes - removed_bytes if is_whole or stage == "ingest" else None
        reasons = [
            {"reason": reason, "count": count, "bytes": bytes_by_reason.get(reason)}
            for reason, count in counts["dropped"].items()
        ]
        if stage == "heuristics":
            # Rules that flag documents, but always behind another rule, have no drop of their own.
            silent = [name for name in rules if name not in counts["dropped"] and nested_value(rules, name, "dropped")]
            reasons += [{"reason": name, "count": 0, "bytes": 0} for name in silent]
            for reason in reasons:
                facts = rules.get(reason["reason"]) or {}
                reason |= {
                    "flagged": facts.get("dropped"),
                    "unique": facts.get("unique"),
                    "threshold": thresholds.get(reason["reason"]),
                }
        reasons.sort(key=lambda reason: (-reason["count"], reason["reason"]))
        rows.append(
            {
                "stage": stage,
                "step": step,
                "in": counts["in"],
                "kept": counts["kept"],
                "dropped": counts["in"] - counts["kept"],
                "dropped_bytes": sum(bytes_by_reason.values()) if is_whole and stage != "ingest" else None,
                "kept_bytes": text_bytes,
                "reasons": reasons,
                "edits": edit_rows,
                "silent": len(rules) - len(reasons) if stage == "heuristics" and rules else 0,
                "joins": before is None or before == counts["in"],
            }
        )
        before = counts["kept"]
    return rows


def read_evaluation(run: Run, model: str) -> dict[str, Any] | None:
    """The evaluation of a model, as its `evaluation.json` says; None of one that was not evaluated."""
    result: dict[str, Any] | None = None
    manifest = run.task("evaluate.model", model)
    for name in manifest.files if manifest else ():
        if manifest and name.endswith("evaluation.json"):
            with run.guard_reading(manifest.file(name)):
                result = json.loads(manifest.file(name).read_text(encoding="utf-8"))
    return result


def model_facts(run: Run, model: Model) -> dict[str, Any]:
    """A model: what it was made from and by which step, the summary of its training, and its evaluation; None if there is none."""
    manifest = run.task(model.step, model.task)
    identity = {"name": model.name, "from": model.parent, "step": model.step}
    return {
        **identity,
        "training": dict(manifest.summary) if manifest else None,
        "evaluation": read_evaluation(run, model.name),
    }


def run_counts(run: Run, models: Iterable[Model]) -> dict[str, Any]:
    """What was trained on what, and how well it did: the numbers of the page's head and of `make demo`'s last lines."""
    models = list(models)
    numbers = {
        "documents_read": nested_value(run.counts("ingest.extract"), "in"),
        "documents": nested_value(run.counts("ingest.extract"), "kept"),
        "bytes_read": run.summary("ingest.extract", "bytes_read"),
        "sources": run.summary("ingest.extract", "by_source"),
        "corpus": {split: run.summary("corpus.write", split) for split in ("train", "validation")},
        "tokens": {split: run.summary("tokenize.encode", split) for split in ("train", "validation")},
        "tokenizer": run.summary("tokenize.train"),
        "models": [model_facts(run, model) for model in models],
        "beside": tasks.read_baselines(run, read_evaluation(run, UNTRAINED)),
        "compared": run.fact("evaluate.compare", "pairs") or [],
        "exports": export_table.export_rows(run),
        "continued": model_table.continuations(run, [of.name for of in models]),
    }
    return numbers | {"notes": [*cautions.notes(numbers), *run.notes()]}


def write_json(path: Path, value: Any) -> Path:
    """`value` as indented JSON with sorted keys, whole or not at all; returns `path`."""
    write_atomically(path, pretty_json(value))
    return path
