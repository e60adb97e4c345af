"""Variants that differ in seeds alone are one setting."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.report.sweeps.groups import group_settings

SEEDS = ["train.seed"]


def config(rate: float, seed: int, **more: Any) -> dict[str, Any]:
    return {"train": {"rate": rate, "seed": seed, "threads": 2}, "variants": {}, "sweep": {}, **more}


def test_replicas_and_what_differs() -> None:
    found = group_settings(
        {
            "main": config(0.1, 0, variants={"hot": {}}),
            "seed-1": config(0.1, 1),
            "hot": config(0.2, 0, reference=object()),
            "hot-seed-1": config(0.2, 1),
            "other": {**config(0.1, 0), "filters": []},
        },
        SEEDS,
    )
    assert [(one.name, one.variants) for one in found] == [
        ("main", ("main", "seed-1")), ("hot", ("hot", "hot-seed-1")), ("other", ("other",))]  # fmt: skip
    assert [one.changes for one in found] == [{}, {"train.rate": (0.1, 0.2)}, {"filters": (None, [])}]


def test_keys_of_placement_make_no_setting() -> None:
    there = config(0.1, 0)
    there["train"]["threads"] = 8
    found = group_settings({"main": config(0.1, 0), "wide": there}, SEEDS, ["train.threads"])
    assert [one.variants for one in found] == [("main", "wide")]
    assert len(group_settings({"main": config(0.1, 0), "wide": there}, SEEDS)) == 2


def test_settings_that_share_a_result_are_one() -> None:
    configs = {
        "main": config(0.1, 0),
        "same": config(0.1, 0, decay=0.1),
        "hot": config(0.2, 0),
        "hot-1": config(0.2, 1),
    }
    configs |= {"same-1": config(0.1, 1, decay=0.1)}
    files = {"main": "a", "same": "a", "hot": "b", "hot-1": "c", "same-1": "d"}
    found = group_settings(configs, SEEDS, results=files)
    assert [one.variants for one in found] == [("main", "same", "same-1"), ("hot", "hot-1")]
    assert [one.changes for one in found] == [{}, {"train.rate": (0.1, 0.2)}]
    assert [one.name for one in group_settings(configs, SEEDS)] == ["main", "same", "hot"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12))
def test_every_variant_is_in_one_setting_whose_key_it_has(drawn: list[tuple[int, int]]) -> None:
    configs = {"main": config(0, 0)} | {f"v{n}": config(rate, seed) for n, (rate, seed) in enumerate(drawn)}
    found = group_settings(configs, SEEDS)
    assert sorted(name for one in found for name in one.variants) == sorted(configs)
    assert found[0].name == "main" and found[0].changes == {}
    for one in found:
        assert len({configs[name]["train"]["rate"] for name in one.variants}) == 1
    assert len(found) == len({configs[name]["train"]["rate"] for name in configs})
