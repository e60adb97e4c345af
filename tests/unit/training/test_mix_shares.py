"""Shares by weights, epochs and temperature, under caps; phases and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.chain.project import Project
from crawl2llm.core.errors import InputError
from crawl2llm.training import mix_shares, schedule
from crawl2llm.training.mix_shares import Group, allot_windows, requested_shares
from crawl2llm.training.pretraining_settings import MixPhase, MixSettings, ResolvedSettings
from crawl2llm.workflow.project_checks import check_project
from tests.unit.training.typed import train_settings

GROUPS = [Group("books", 1_000, 99), Group("code", 100, 9), Group("web", 8_900, 889)]


def mix(*phases: dict[str, Any], **more: Any) -> MixSettings:
    return MixSettings.model_validate({"phases": list(phases), **more})


def train(**more: Any) -> ResolvedSettings:
    keys = {"model": {"context": 10}, "global_batch_tokens": 100, "epochs": None, "steps": 100, **more}
    return cast(ResolvedSettings, train_settings(**keys))


def made(settings: MixSettings, **more: Any) -> tuple[list[mix_shares.Phase], list[str]]:
    told = train(**more)
    return mix_shares.plan_phases(settings, GROUPS, schedule.make_plan(told, 10_000), told.decay)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ({"shares": {"books": 0.5, "code": 0.3, "web": 0.2}}, [0.5, 0.3, 0.2]),
        ({"shares": {"code": 0.01}}, [0.99 * 1_000 / 9_900, 0.01, 0.99 * 8_900 / 9_900]),
        ({"shares": {"web": 1}}, [0, 0, 1]),
        ({"shares": {}}, [0.1, 0.01, 0.89]),
        ({"epochs": {"books": 3, "code": 0}}, [3_000 / 11_900, 0, 8_900 / 11_900]),
        ({"temperature": 1}, [0.1, 0.01, 0.89]),
        ({"temperature": 2}, [31.6228 / 135.9623, 10 / 135.9623, 94.3398 / 135.9623]),
        ({"temperature": 1e9}, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_shares(phase: dict[str, Any], expected: list[float]) -> None:
    assert requested_shares(MixPhase.model_validate(phase), 1, GROUPS) == pytest.approx(expected, rel=1e-4)


def test_groups_without_a_window_have_nothing_of_what_is_shared_out() -> None:
    groups = [*GROUPS, Group("x", 5, 0)]
    for phase in ({"shares": {"code": 0.01}}, {"epochs": {"books": 3}}, {"temperature": 5}):
        assert requested_shares(MixPhase.model_validate(phase), 1, groups)[3] == 0


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({}, "phases.1 has none of shares, epochs, temperature: give exactly one"),
        ({"shares": {"web": 1}, "temperature": 3}, "phases.1 has shares and temperature"),
        ({"shares": {"web": 0.5, "books": 0.6}}, "phases.1.shares add up to 1.1, more than 1"),
        ({"until": 0.5, "shares": {"web": 1}}, "phases.1 is the last, and ends with the training"),
    ],
)
def test_refused_before_any_corpus(phase: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        mix_shares.check_phases(mix(phase), "cosine")


def test_phases_that_do_not_follow_each_other_are_refused() -> None:
    web = {"shares": {"web": 1}}
    with pytest.raises(InputError, match=r"phases\.1 is not the last: every phase but the last has `until`"):
        mix_shares.check_phases(mix(web, web), "cosine")
    with pytest.raises(InputError, match=r"phases\.2\.until is 0\.4, not above the 0\.5"):
        mix_shares.check_phases(mix({"until": 0.5, **web}, {"until": 0.4, **web}, web), "cosine")
    with pytest.raises(InputError, match=r"until is decay, and pretrain\.train\.schedule is 'cosine': only wsd"):
        mix_shares.check_phases(mix({"until": "decay", **web}, web), "cosine")
    with pytest.raises(InputError, match=r"phases\.1 ends with step 100 of 100|phases\.2 ends with step 100 of 100"):
        made(mix({"until": 0.999, **web}, web))


def test_what_a_mix_of_the_config_names_has_to_be_there() -> None:
    sources = {"extract": {"sources": [{"name": "web", "kind": "crawl"}]}}
    for section, words in [
        (
            {"phases": [{"shares": {"wbe": 0.5}}]},
            r"phases\.1\.shares names 'wbe', and ingest\.extract\.sources has web",
        ),
        ({"phases": [{"epochs": {"web": 1}}], "max_epochs_of": {"x": 1}}, r"max_epochs_of names 'x'"),
        ({"phases": [{"temperature": 3}], "by": "quality"}, r"by is 'quality', which quality\.score measures"),
    ]:
        tree = config.validate({"ingest": sources, "filters": ["language"], "pretrain": {"mix": section}})
        with pytest.raises(InputError, match=words):
            check_project(Project(tree))
    with pytest.raises(InputError, match=r"shares names 'de', of which the training text has nothing; it has books, c"):
        made(mix({"shares": {"de": 0.1}}, by="language"))
    with pytest.raises(InputError, match=r"max_epochs_of names 'de', of which the training text has nothing"):
        made(mix({"temperature": 1}, by="language", max_epochs_of={"de": 1}))


def test_phases_end_with_a_step() -> None:
    one, two = {"shares": {"web": 1}}, {"shares": {"web": 0.5}}
    found, held = made(mix({"until": 0.8, **one}, two))
    assert [(phase.first, phase.windows) for phase in found] == [(0, 800), (800, 200)] and not held
    assert found[0].shares == (0, 0, 1)
    found, _ = made(mix({"until": 0.799, **one}, two))
    assert [phase.windows for phase in found] == [800, 200]  # the step in which it is reached
    found, _ = made(mix({"until": "decay", **one}, two), schedule="wsd", decay=0.25)
    assert [phase.windows for phase in found] == [750, 250]
    ramp = [[0, 0.1], [0.5, 1]]  # 50 steps of one window, 50 of ten
    found, _ = made(mix({"until": 0.8, **one}, two), batch_ramp=ramp)
    assert [phase.windows for phase in found] == [440, 110], "a share of the tokens, not of the steps"


def test_what_the_corpus_lacks_is_said_by_name() -> None:
    half = mix({"until": 0.5, "shares": {"code": 0.1}}, {"shares": {"code": 0.02, "books": 0.5}})
    with pytest.raises(InputError) as error:
        made(half)
    assert (
        "code: 100 tokens are there, 600 are wanted (6.67 epochs; at most 4). Lower their shares, train on fewer tokens"
        in str(error.value)
    )
    found, held = made(half.model_copy(update={"max_epochs_of": {"code": 7}}))
    assert not held and found[0].shares[1] == pytest.approx(0.1)
    found, held = made(half.model_copy(update={"shortage": "share"}))
    windows = [[share * phase.windows for share in phase.shares] for phase in found]
    assert held == ["code"] and windows[0][1] + windows[1][1] == pytest.approx(4 * 9)
    assert windows[0][1] / windows[1][1] == pytest.approx(5), "in the proportion of the phases"
    assert found[0].shares[0] / found[0].shares[2] == pytest.approx(1_000 / 8_900), "the others keep theirs"
    with pytest.raises(
        InputError, match=r"phases\.1 is to train on 10,000 tokens, and under the caps its groups give 360"
    ):
        made(mix({"shares": {"code": 1}}, shortage="share"))


def test_groups_that_are_all_too_short_are_refused() -> None:
    told = train()
    with pytest.raises(InputError, match=r"no group of pretrain\.mix\.by has the 11 tokens of a window: a, b"):
        mix_shares.plan_phases(
            mix({"temperature": 1}), [Group("a", 9, 0), Group("b", 8, 0)], schedule.make_plan(told, 17), told.decay
        )
    with pytest.raises(InputError, match=r"phases\.1\.temperature: each group has too few tokens for one window: a$"):
        requested_shares(MixPhase(temperature=2), 1, [Group("a", 9, 0)])
    with pytest.raises(InputError, match="too few for one window"):
        schedule.make_plan(told, 17, windows=0)


@settings(deadline=None)
@given(st.data())
def test_no_group_is_above_its_cap_and_nothing_is_lost(chance: st.DataObject) -> None:
    groups, phases = chance.draw(st.integers(1, 5)), chance.draw(st.integers(1, 3))
    parts = st.lists(st.integers(0, 9), min_size=groups, max_size=groups).filter(any)
    shares = [[part / sum(row) for part in row] for row in (chance.draw(parts) for _ in range(phases))]
    sizes = [chance.draw(st.integers(1, 1_000)) for _ in range(phases)]
    caps = [float(chance.draw(st.integers(0, 1_000))) for _ in range(groups)]
    found, held = allot_windows(shares, sizes, caps)
    for group, cap in enumerate(caps):
        total = sum(row[group] for row in found)
        assert total <= cap + 1e-6 and (group not in held or total == pytest.approx(cap))
    for row, asked, size in zip(found, shares, sizes, strict=True):
        free = [group for group in range(groups) if group not in held and asked[group]]
        assert sum(row) == pytest.approx(size) or not free, "all of a phase is used where a group is below its cap"
        for group in free[1:]:  # the others keep their proportion
            assert row[group] * asked[free[0]] == pytest.approx(row[free[0]] * asked[group])
