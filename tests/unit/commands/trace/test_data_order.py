"""Which step read which tokens: as the trainer reads them, and by a plain loop over all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.trace.data_order import DataOrder
from crawl2llm.stages.pretrain import pack
from crawl2llm.training import data, schedule, stream_documents
from crawl2llm.training.packed_windows import read_totals
from crawl2llm.training.pretraining_settings import ResolvedSettings
from tests.unit.stages.pretrain.test_mix import CONTEXT, corpus, draw
from tests.unit.training.typed import train_settings

STEPS = 60
TRAIN = {"model": {"context": CONTEXT}, "global_batch_tokens": 4 * CONTEXT, "steps": STEPS, "epochs": None}


@given(st.integers(0, 200), st.integers(1, 40), st.integers(1, 12), st.integers(1, 30))
def test_windows_that_hold_tokens(start: int, size: int, context: int, windows: int) -> None:
    wanted = range(start, start + size)
    brute = [n for n in range(windows) if any(n * context <= token <= (n + 1) * context for token in wanted)]
    assert data.windows_holding(start, start + size, context, windows).tolist() == brute


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    return corpus(tmp_path_factory.mktemp("corpus"))


def plain(encoded: list[Path], **more: Any) -> DataOrder:
    plan = schedule.make_plan(cast(ResolvedSettings, train_settings(**TRAIN)), len(data.open_split(encoded, "train")))
    return DataOrder(encoded, plan, 0, **more)


def packed(encoded: list[Path], folder: Path) -> DataOrder:
    """With windows that pretrain.pack has packed."""
    file, out = folder / "config.yaml", folder / "pretrain/pack/manifest.json"
    file.write_text(json.dumps({"pretrain": {"train": {**TRAIN, "packing": "best_fit"}}}))
    assert pack.main(["--config", str(file), "--manifest", str(out), "--tokens", *map(str, encoded)]) == 0
    windows = read_totals([out], CONTEXT)["windows"]
    plan = schedule.make_plan(cast(ResolvedSettings, train_settings(**TRAIN)), 0, windows)
    return DataOrder(encoded, plan, 0, packs=[out], packing="best_fit")


def of_mix(whole: tuple[Any, ...], folder: Path, packing: str = "stream") -> DataOrder:
    """With a mix by source, in two phases."""
    phases = {"until": 0.5, "shares": {"books": 0.8}}, {"temperature": 1}
    draw(folder, whole, "source", *phases, steps=STEPS, packing=packing)
    return plain(whole[0], mix=[folder / "pretrain/mix/manifest.json"], packing=packing)


@pytest.mark.parametrize("kind", ["plain", "mix", "rolled back", "packed", "packed mix"])
def test_steps_and_documents_are_those_of_the_trainer(kind: str, whole: tuple[Any, ...], tmp_path: Path) -> None:
    rolled = [{"from": 24, "to": 10, "sequences": 56}]
    packing = "best_fit" if "packed" in kind else "stream"
    if "mix" in kind:
        found = of_mix(whole, tmp_path, packing)
    elif "packed" in kind:
        found = packed(whole[0], tmp_path)
    else:
        found = plain(whole[0], rollbacks=rolled if "back" in kind else ())
    read: dict[str, list[int]] = {}
    for step in range(1, STEPS + 1):
        first, number = found.plan.window_span(step)
        first += 56 if kind == "rolled back" and step > 10 else 0
        windows = found.reader.windows_at(first, number)
        assert found.windows_of(step).tolist() == windows.tolist()
        trainers = stream_documents.document_ids(whole[0], found.reader.places(windows))
        pieces = list(found.pieces_in(found.places_of(windows)))
        assert list(dict.fromkeys(piece.document for piece in pieces)) == trainers
        for name in trainers:
            read.setdefault(name, []).append(step)
    for document in whole[3][:: 10 if packing == "best_fit" else 3]:
        piece = found.place_of(document["id"])
        assert piece is not None and piece.end - piece.start == len(document["tokens"])
        assert found.stream.read(piece.start, len(document["tokens"])).tolist() == document["tokens"]
        assert found.steps_reading(piece.start, piece.end) == read.get(document["id"], []), document["id"]
    assert any(len(some) > 1 for some in read.values())


def test_many_steps_are_compared_in_parts(whole: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found = plain(whole[0])
    piece = found.place_of(whole[3][7]["id"])
    assert piece is not None
    at_once = found.steps_reading(piece.start, piece.end)
    monkeypatch.setattr("crawl2llm.commands.trace.data_order.AT_ONCE", 9)
    assert found.steps_reading(piece.start, piece.end) == at_once


def test_places_do_not_overlap(whole: tuple[Any, ...]) -> None:
    found = plain(whole[0])
    spans = found.places_of(np.array([3, 4, 9, 3]))
    assert spans == [(3 * CONTEXT, 5 * CONTEXT + 1), (9 * CONTEXT, 10 * CONTEXT + 1)]
