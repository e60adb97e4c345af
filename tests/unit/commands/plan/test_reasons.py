"""Why a task runs, from what Snakemake says of it."""

from __future__ import annotations

import pytest

from crawl2llm.chain.freshness import ABOVE_PREFIX, STALE_PREFIX
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.reasons import INPUT_UPDATED, PARAMS_CHANGED, reasons_by_rule, short_reason


def updated(*places: str) -> str:
    return INPUT_UPDATED + ", ".join(f"results/main/{place}manifest.json" for place in places)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (updated("language/select/", "ingest/check/"), "runs, unless language.select comes out the same"),
        (updated("language/score/00000.", "ingest/check/"), "runs, unless language.score comes out the same"),
        (f"{updated('dedup/band/00.', 'dedup/band/01.')}", "runs, unless dedup.band comes out the same"),
        (f"{updated('ingest/check/')}; {STALE_PREFIX}x", f"{STALE_PREFIX}x; needs ingest.check, which runs again"),
        (f"Missing output files: a, b; {updated('ingest/check/')}", "not made yet"),
        (
            f"Params have changed since last execution: {STALE_PREFIX}{ABOVE_PREFIX}ingest.check",
            f"{ABOVE_PREFIX}ingest.check",
        ),
        (
            f"{updated('ingest/check/')}; Params have changed since last execution: {STALE_PREFIX}{ABOVE_PREFIX}ingest.check",
            "runs, unless ingest.check comes out the same",
        ),
        (
            f"{updated('ingest/extract/00001.')}; Params have changed since last execution: "
            f"{STALE_PREFIX}other source files in shard 00001",
            "runs, unless ingest.extract comes out the same",
        ),
    ],
)
def test_a_reason_in_short(reason: str, words: str) -> None:
    assert short_reason(reason) == words


def test_a_copied_setting_is_named_as_in_the_config() -> None:
    """report.whatif's settings hold those of the select steps."""
    copied = "select.quality.select.keep_fraction 0.9 → 0.8 and select.language.select.threshold 0.5 → 0.65"
    shown = "quality.select.keep_fraction 0.9 → 0.8 and language.select.threshold 0.5 → 0.65"
    assert short_reason(f"{PARAMS_CHANGED}{copied}") == shown
    assert short_reason(f"{PARAMS_CHANGED}threshold 0.4 → 0.77") == "threshold 0.4 → 0.77"


def test_what_comes_last_before_a_task_depends_on_the_order_of_the_filters() -> None:
    reason = updated("quality/select/", "dedup/select/")
    assert short_reason(reason, ["dedup", "quality"]) == "runs, unless quality.select comes out the same"
    assert short_reason(reason, ["quality", "dedup"]) == "runs, unless dedup.select comes out the same"


def task(rule: str, words: str) -> Task:
    return Task(rule, {"reason": f"Params have changed since last execution: {STALE_PREFIX}{words}"})


def test_reasons_that_are_alike_are_one_line() -> None:
    made = [task("ingest_extract", f"source files: {number}.gz replaced") for number in range(3)]
    made += [
        task("ingest_extract", f"results/main/ingest/extract/0000{number}.parquet is missing") for number in (3, 4)
    ]
    made += [task("ingest_extract", "damaged manifest")]
    assert reasons_by_rule(made)["ingest_extract"] == {
        "source files: 0.gz replaced (and 2 more like this)": 3,
        "results/main/ingest/extract/00003.parquet is missing (and 1 more like this)": 2,
        "damaged manifest": 1,
    }


def test_other_values_are_other_lines_and_rules_stand_in_the_order_of_the_workflow() -> None:
    """Two variants set one key to two values."""
    made = [task("language_select", f"threshold 0.4 → 0.{number}") for number in (5, 6)] + [task("ingest_check", "x")]
    found = reasons_by_rule(made)
    assert list(found) == ["ingest_check", "language_select"]
    assert list(found["language_select"]) == ["threshold 0.4 → 0.5", "threshold 0.4 → 0.6"]


@pytest.mark.parametrize("step", ["compress.export", "report.render", "report.compare"])
def test_what_shows_the_steps_above_runs_whatever_comes_out(step: str) -> None:
    assert short_reason(updated("evaluate/model/base."), step=step) == "needs evaluate.model, which runs again"
