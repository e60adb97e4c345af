"""The table of sources: tokens, bytes per token, and what a mix means in epochs."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import tables


def run(**more: dict[str, Any]) -> Run:
    encoded = {
        "train": {"web": {"tokens": 100, "bytes": 400}, "code": {"tokens": 50, "bytes": 90}},
        "validation": {"web": {"tokens": 20, "bytes": 80}},
    }
    facts = {name: {"documents": 1, "bytes": 500} for name in ("code", "empty", "web")}
    summaries: dict[str, dict[str, Any]] = {
        "ingest.extract": {"by_source": facts},
        "tokenize.encode": {"by_source": encoded},
        **{name.replace("_", "."): of for name, of in more.items()},
    }
    return Run({step: [Manifest(step, "test", summary=summary)] for step, summary in summaries.items()})


def column(name: str, found: Run) -> list[Any]:
    return [row[name] for row in tables.source_rows(found)]


def test_bytes_per_token_of_each_source() -> None:
    """Code takes more tokens than prose of as many bytes."""
    found = run()
    assert column("name", found) == ["code", "empty", "web"] and column("tokens", found) == [50, 0, 120]
    assert column("bytes_per_token", found) == [1.8, None, 4.0]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, [None, None, None]),
        ({"pretrain_plan": {"epochs": 2.0}}, [2.0, 2.0, 2.0]),
        ({"pretrain_plan": {"epochs": 2.0}, "pretrain_train": {"epochs": 1.5}}, [1.5, 1.5, 1.5]),
        ({"pretrain_mix": {"by": "source", "groups": {"web": {"epochs": 0.5}, "code": {"epochs": 4.0}}}}, [4.0, None, 0.5]),
        ({"pretrain_mix": {"by": "language", "groups": {"en": {"epochs": 0.5}}}, "pretrain_train": {"epochs": 1.0}}, [None] * 3),
    ],
    ids=["nothing", "planned", "trained", "mix", "another mix"],
)  # fmt: skip
def test_epochs_of_each_source(more: dict[str, Any], wanted: list[float | None]) -> None:
    assert column("epochs", run(**more)) == wanted
