"""Rates by a data sheet, and by what gpu-check measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.training import gpus
from crawl2llm.training.prediction import rates

CHECK = ROOT / "benchmarks/results/gpu_check.json"


def gpu(name: str) -> gpus.Gpu:
    found = gpus.find(name)
    assert found
    return found


def test_every_kind_has_rates_and_an_unknown_one_none() -> None:
    for name in gpus.KINDS:
        assert (found := rates.sheet_rates(gpu(name))) and found.fused < found.copy < found.products
    assert rates.sheet_rates(gpus.Gpu("gtx", 8e9, None)) is None


def test_what_gpu_check_measured_takes_the_place_of_the_sheet() -> None:
    sheet, checked = rates.sheet_rates(gpu("h100")), rates.read_check(CHECK, gpu("h100"))
    assert sheet and checked.products and checked.copy and checked.link is None
    found = rates.checked_rates(sheet, checked, CHECK)
    assert (found.products, found.copy, found.link) == pytest.approx((checked.products, checked.copy, sheet.link))
    assert found.fused / sheet.fused == pytest.approx(checked.copy / sheet.copy) and "gpu_check.json" in found.basis
    assert found.products == pytest.approx(sheet.products, rel=0.01), "the table is made from this file"
    assert [step["settings"]["zero_stage"] for step in checked.steps] == [0, 0, 0, 1, 1], "eight bits are left out"


def test_links_of_a_check_take_the_place_of_those_they_are_of(tmp_path: Path) -> None:
    body = json.loads(CHECK.read_text())
    for way, rate in (("within a node", 300e9), ("between nodes", 40e9)):
        values = {"bus_bytes_per_second": rate}
        body["lines"].append({"check": "links", "what": f"all-reduce {way}, 8 processes, 1,024 MiB", "values": values})
    (tmp_path / "check.json").write_text(json.dumps(body))
    sheet, checked = rates.sheet_rates(gpu("h100")), rates.read_check(tmp_path / "check.json", gpu("h100"))
    assert sheet
    found = rates.checked_rates(sheet, checked, CHECK)
    assert (found.link, found.network) == pytest.approx((300e9, 40e9))


def test_the_check_of_another_gpu_and_what_is_no_check_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pretrain\.plan\.gpu_check is .*H100 80GB HBM3.* planned for an a100-80gb"):
        rates.read_check(CHECK, gpu("a100-80gb"))
    for text in ("", "[]", json.dumps({"lines": [{}]})):
        (tmp_path / "check.json").write_text(text)
        with pytest.raises(InputError, match="which is no JSON of crawl2llm gpu-check"):
            rates.read_check(tmp_path / "check.json", gpu("h100"))
