"""Norm and clipping by the foreach kernels that a GPU takes, of gradients that two processes share out, with AdamW and with Muon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.stages.pretrain.test_engines import side_by_side


def test_the_same_steps_as_without_them(tmp_path: Path) -> None:
    side_by_side("foreach_kernels", 2, str(tmp_path))
    cases = json.loads((tmp_path / "foreach.json").read_text())
    assert len(cases) == 4
    for plain, foreach in cases.values():
        assert plain["used"] == [] and foreach["used"] == ["_foreach_mul_ DTensor", "_foreach_norm DTensor"]
        for key in ("norms", "losses", "weights"):
            assert foreach[key] == pytest.approx(plain[key], rel=1e-5)
        # The fault: a process that takes the norm of its own part clips less than the others, and Muon's matrices drift apart.
        assert all(own < 0.95 * norm for own, norm in zip(foreach["parts"], foreach["norms"], strict=True))
    for stage in ("1", "3"):
        adamw, muon = (cases[f"{stage} {name}"][1]["norms"][0] for name in ("adamw", "muon"))
        assert adamw == pytest.approx(muon, rel=1e-6), "the first gradient is the same"
    for name in ("adamw", "muon"):
        assert cases[f"1 {name}"][1]["weights"] == pytest.approx(cases[f"3 {name}"][1]["weights"], rel=1e-6)
