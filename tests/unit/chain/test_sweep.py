"""sweep: which variants lists of values stand for, what they are called, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import sweep, sweep_errors
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.nested_dicts import lookup
from crawl2llm.workflow.project_checks import check_configs

RATE, FRACTION = "pretrain.train.learning_rate", "quality.select.keep_fraction"


def made(**section: Any) -> dict[str, dict[str, Any]]:
    return dict(validate({"sweep": section})["variants"])


def test_a_grid_is_every_combination() -> None:
    found = made(grid={RATE: [1e-3, 3e-3], FRACTION: [0.5, 0.8]})
    assert list(found) == [
        "learning_rate-0_001-keep_fraction-0_5",
        "learning_rate-0_001-keep_fraction-0_8",
        "learning_rate-0_003-keep_fraction-0_5",
        "learning_rate-0_003-keep_fraction-0_8",
    ]
    assert found["learning_rate-0_003-keep_fraction-0_8"] == {
        "pretrain": {"train": {"learning_rate": 3e-3}},
        "quality": {"select": {"keep_fraction": 0.8}},
    }


def test_the_config_of_a_variant_has_its_values_and_no_sweep() -> None:
    whole = validate({"sweep": {"grid": {RATE: [1e-3]}}})
    own = config_of_variant(whole, "learning_rate-0_001")
    assert own["pretrain"]["train"]["learning_rate"] == 1e-3
    assert own["variants"] == {} and own["sweep"] == validate({})["sweep"]
    assert validate(whole) == whole, "a config that was completed once stays as it is"


def test_seeds_repeat_every_setting_and_the_main_run() -> None:
    found = made(grid={FRACTION: [0.5]}, seeds=3)
    assert list(found) == [
        "seed-1",
        "seed-2",
        "keep_fraction-0_5",
        "keep_fraction-0_5-seed-1",
        "keep_fraction-0_5-seed-2",
    ]
    assert [lookup(found[name], "pretrain.train.seed") for name in ("seed-2", "keep_fraction-0_5-seed-1")] == [2, 1]


def test_one_left_out() -> None:
    found = made(leave_one_out=["filters", "heuristics.select.families"])
    assert found["without-dedup"] == {"filters": ["language", "heuristics", "quality", "decontaminate"]}
    assert "without-language" not in found, "heuristics needs it"
    assert "gopher_quality" not in lookup(found["without-gopher_quality"], "heuristics.select.families")
    sources = [{"name": name, "kind": "text", "paths": [f"{name}.txt"]} for name in ("books", "web")]
    whole = validate({"ingest": {"extract": {"sources": sources}}, "sweep": {"leave_one_out": ["sources"]}})
    assert [source["name"] for source in lookup(whole["variants"]["without-books"], "ingest.extract.sources")] == [
        "web"
    ]


def test_mixes_and_sizes() -> None:
    found = made(
        mixes=[{"web": 0.7, "books": 0.3}], sizes=[{"pretrain.train.model.layers": 2, "pretrain.train.steps": 10}]
    )
    assert found["phases-shares-web-0_7-books-0_3"] == {
        "pretrain": {"mix": {"phases": [{"shares": {"web": 0.7, "books": 0.3}}]}}
    }
    assert found["layers-2-steps-10"] == {"pretrain": {"train": {"model": {"layers": 2}, "steps": 10}}}


def test_random_settings_are_the_same_everywhere_and_others_with_another_seed() -> None:
    keys = {RATE: {"low": 1e-4, "high": 1e-2, "log": True}, "pretrain.train.model.layers": [2, 4, 8]}
    found = made(random={"count": 20, "keys": keys})
    rates = [lookup(one, RATE) for one in found.values()]
    assert len(set(rates)) >= 18 and len(rates) == 20 and all(1e-4 <= rate <= 1e-2 for rate in rates)
    assert 6 <= sum(rate < 1e-3 for rate in rates) <= 14, "uniform in the logarithm"
    assert {lookup(one, "pretrain.train.model.layers") for one in found.values()} == {2, 4, 8}
    assert rates[:2] == [0.00269, 0.0031], "a hash: the same on every machine"
    more = made(random={"count": 22, "keys": keys})
    assert list(more)[:20] == list(found), "more of them leave those before as they are"
    other = made(random={"count": 20, "seed": 1, "keys": keys})
    assert len(other.keys() & found.keys()) <= 2, "with three digits two draws may be the same by chance"


VALUE = st.one_of(
    st.integers(-3, 30), st.floats(1e-6, 100, allow_nan=False), st.booleans(), st.text(max_size=12), st.none()
)


@given(st.lists(VALUE, min_size=1, max_size=6), st.lists(VALUE, min_size=1, max_size=4))
def test_every_setting_has_a_name_of_its_own_that_the_config_takes(one: list[Any], two: list[Any]) -> None:
    config = {**validate({}), "sweep": {**validate({})["sweep"], "grid": {"a.key": one, "b.key": two}}}
    found = sweep.sweep_variants(config)
    different = {repr((x, y)) for x in one for y in two}
    assert len(found) <= len(different) and all(re.fullmatch("(?!main$)[a-z][a-z0-9_-]*", name) for name in found)
    assert {repr((overlay["a"]["key"], overlay["b"]["key"])) for overlay in found.values()} <= different
    alone = sweep.sweep_variants({**config, "sweep": {**config["sweep"], "grid": {"a.key": one[:1], "b.key": two[:1]}}})
    ((name, overlay),) = alone.items()
    assert found.get(name, overlay) == overlay, "more values give no name to another setting"
    assert overlay in found.values()


def test_values_that_differ_in_a_late_digit_have_names_that_tell_them_apart() -> None:
    close, mixed = [0.001, 0.0010000001, 0.00100000012, 1e-5, 1.00000001e-5], "learning_rate-0_0010000001"
    found = made(grid={RATE: close})
    assert [lookup(one, RATE) for one in found.values()] == close and next(iter(found)) == "learning_rate-0_001"
    assert lookup(found[mixed], RATE) == close[1]
    assert made(grid={RATE: close[::-1]}) == found, "their order decides nothing"


def test_a_name_that_two_settings_would_have_is_that_of_neither() -> None:
    one, other = {RATE: 0.5}, {"finetune.train.learning_rate": 0.5}
    ((short, first),) = made(sizes=[one]).items()
    found = made(sizes=[one, other])
    assert short not in found and found == made(sizes=[other, one])
    assert len(found) == 2 and first in found.values() and all(name.startswith(f"{short}-") for name in found)


def test_a_name_that_stands_for_other_settings_now_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a list loses the value whose name another one then has, the fingerprint is another."""
    monkeypatch.chdir(tmp_path)
    prints = set()
    for key in (RATE, "finetune.train.learning_rate"):
        whole = validate({"sweep": {"sizes": [{key: 0.5}]}})
        prints.add(Project(whole).fingerprint("learning_rate-0_5", "pretrain.train"))
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"grid": {RATE: [1e-3] * 5, FRACTION: [0.1] * 9}}, "sweep makes 45 variants, and sweep.most is 32"),
        (
            {"grid": {"pretrain.train.learning_rat": [1]}},
            "config.yaml: sweep.grid.pretrain.train.learning_rat is not a known key (did you mean pretrain.train.learning_rate?)",
        ),
        (
            {"sizes": [{"pretrian.train.steps": 1}]},
            "config.yaml: sweep.sizes.0.pretrian.train.steps is not a known key (did you mean pretrain.train.steps?)",
        ),
        (
            {"grid": {FRACTION: [0.5, 2]}},
            f"config.yaml: sweep.grid.{FRACTION} is 2, out of range; allowed: number from 0 to 1",
        ),
        (
            {"random": {"count": 2, "keys": {FRACTION: {"low": -1, "high": 0.5}}}},
            f"config.yaml: sweep.random.keys.{FRACTION} is -0.169, out of range",
        ),
        (
            {"random": {"count": 2, "keys": {"pretrain.train.steps": {"low": 1, "high": 9}}}},
            "config.yaml: sweep.random.keys.pretrain.train.steps is {'low': 1, 'high': 9}, and pretrain.train.steps takes whole numbers",
        ),
        ({"random": {"keys": {FRACTION: 3}}}, "allowed: a list of values, or {low, high}"),
        (
            {"mixes": [{"web": 0.5}, {"web": 2}]},
            "config.yaml: sweep.mixes.1 (variant phases-shares-web-2): pretrain.mix",
        ),
        ({"leave_one_out": ["filtrs"]}, "'filtrs', which is no key (did you mean filters?)"),
        ({"seeds": 2, "seed_keys": ["pretrain.train.sed"]}, "which is no key (did you mean pretrain.train.seed?)"),
        (
            {"grid": {RATE: [1e-3], "pretrain.train.micro_batch": [1]}},
            "sweep.grid.pretrain.train.micro_batch says where or how fast a step runs, so its variants would have the same results",
        ),
        (
            {"random": {"keys": {"pretrain.train.log_every": [1, 2]}}},
            "sweep.random.keys.pretrain.train.log_every says where",
        ),
        (
            {"sizes": [{"pretrain.train.log_every": 2}]},
            "sweep.sizes has pretrain.train.log_every alone, which says where",
        ),
        (
            {"leave_one_out": ["dedup.select.threshold"]},
            "sweep.leave_one_out has 'dedup.select.threshold', which is 0.8",
        ),
        ({"random": {"count": 1, "keys": {RATE: {"low": 0.2, "high": 0.1}}}}, "low must be below high"),
        ({"random": {"count": 1, "keys": {FRACTION: {"low": 0, "high": 1, "log": True}}}}, "and above 0 with log"),
        ({"seeds": 2, "seed_keys": ["pretrain.train.schedule"]}, "sweep.seed_keys has 'pretrain.train.schedule'"),
        ({"grid": {RATE: [-1]}}, "config.yaml: sweep.grid.pretrain.train.learning_rate is -1"),
        ({"random": {"count": 3}}, "sweep.random.count is 3, and sweep.random.keys is empty"),
        ({"grid": {"sweep.seeds": [1, 2]}}, "sweep.grid has the key sweep.seeds; it takes keys of steps and filters"),
        ({"grid": {"variants.x": [{}]}}, "sweep.grid has the key variants.x"),
        ({"random": {"count": 1, "keys": {"sweep.most": [1]}}}, "sweep.random.keys has the key sweep.most"),
        ({"sizes": [{RATE: 1e-3, "variants": {}}]}, "sweep.sizes has the key variants"),
        ({"seeds": 2, "seed_keys": ["sweep.most"]}, "sweep.seed_keys has the key sweep.most"),
        (
            {"grid": {"evaluate.common.max_bytes": [5]}},
            "sweep makes the variant max_bytes-5, in which evaluate.common.max_bytes is 5, and main has 1000000: all variants are measured",
        ),
    ],
)
def test_what_is_wrong_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        validate({"sweep": section})


@pytest.mark.parametrize(
    ("section", "number"),
    [
        # A model's keys need each other, and those of other models are known by it alone.
        (
            {
                "sizes": [
                    {"models.long.from": "base", "models.long.step": "finetune.train", "models.long.epochs": 2},
                    {"models.sft.step": "align.train", "models.sft.method": "dpo"},
                ]
            },
            2,
        ),
        ({"grid": {"models.long.from": ["base"], "models.long.step": ["finetune.train"]}}, 1),
        # Of a range what is drawn counts: no end has to be a value of the key.
        (
            {
                "random": {
                    "count": 2,
                    "keys": {"pretrain.train.steps": {"low": 1e2, "high": 1e4, "log": True, "integer": True}},
                }
            },
            2,
        ),
        ({"random": {"count": 3, "keys": {"heuristics.calibrate.tail": {"low": 0, "high": 0.5}}}}, 3),
    ],
)
def test_what_can_be_is_not_refused(section: dict[str, Any], number: int) -> None:
    assert len(validate({"sweep": section})["variants"]) == number


def test_the_part_of_a_sweep_that_is_wrong_is_named() -> None:
    """Another part with the same value in it is not."""
    steps, filters = "pretrain.train.steps", ["heuristics", "language"]
    config = validate({"sweep": {"sizes": [{steps: 100}], "grid": {steps: [100], "filters": [filters]}}})
    (name,) = (name for name in config["variants"] if "filters" in name)
    assert (
        sweep_errors.variant_label(config, name)
        == f"sweep.grid.{steps} 100, sweep.grid.filters {filters!r} (variant {name})"
    )


def test_settings_that_cannot_go_together_are_named_by_the_sweep_and_once() -> None:
    markup, extractor = "ingest.extract.markup", "ingest.extract.extractor"
    with pytest.raises(ConfigError) as refused:
        validate({"sweep": {"grid": {markup: ["markdown"], extractor: ["resiliparse"]}, "seeds": 3}})
    (line,) = str(refused.value).splitlines()
    assert line.startswith(
        f"config.yaml: sweep.grid.{markup} 'markdown', sweep.grid.{extractor} 'resiliparse' (variant "
    )


def test_what_a_plan_refuses_names_the_sweep_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = "finetune.train.max_length"
    more = {
        "pretrain": {"train": {"model": {"context": 256}}},
        "models": {"sft": {"from": "base", "step": "finetune.train"}},
    }
    with pytest.raises(
        InputError, match=rf"^sweep\.grid\.{key} 9000 \(variant max_length-9000\): finetune.train.max_length is 9,000"
    ):
        check_configs(Project(validate({**more, "sweep": {"grid": {key: [128, 9000]}}})))
    with pytest.raises(InputError, match=r"^variants\.x: finetune.train.max_length is 9,000"):
        check_configs(Project(validate({**more, "variants": {"x": {"finetune": {"train": {"max_length": 9000}}}}})))


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_bytes", 5), ("seed", 1), ("context", 64), ("carry", 0.1), ("precision", "bf16"), ("enabled", False)],
)
def test_a_variant_is_measured_as_main_is(key: str, value: Any) -> None:
    own = {"evaluate": {"common": {key: value}}}
    said = f"variants.x.evaluate.common.{key} is {value!r}, and main has "
    with pytest.raises(ConfigError, match=re.escape(said)):
        validate({"variants": {"x": own}})
    validate({**own, "variants": {"x": own}})  # the same for all


def test_a_variant_may_be_measured_in_another_place() -> None:
    validate({"variants": {"x": {"evaluate": {"common": {"threads": 1, "batch_size": 4}}}}})


def test_a_size_may_say_how_it_is_trained() -> None:
    (overlay,) = made(sizes=[{"pretrain.train.model.layers": 2, "pretrain.train.micro_batch": 2}]).values()
    assert overlay == {"pretrain": {"train": {"model": {"layers": 2}, "micro_batch": 2}}}


def test_a_variant_by_hand_of_the_same_name_is_refused() -> None:
    own = {"learning_rate-0_001": {"pretrain": {"train": {"learning_rate": 5}}}}
    with pytest.raises(ConfigError, match="sweep makes a variant learning_rate-0_001, and variants has another"):
        validate({"variants": own, "sweep": {"grid": {RATE: [1e-3]}}})
