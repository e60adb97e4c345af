"""Which settings are tried after which."""

from __future__ import annotations

from collections.abc import Sequence

from crawl2llm.commands.tune.command import best_lines, first_setting
from crawl2llm.commands.tune.search import Setting, Trial, search
from tests.unit.training.typed import train_settings


def speeds(setting: Setting) -> Trial:
    """A GPU with room for a micro-batch of 16, or 64 where all is computed again, that gains little above 8."""
    room = {"nothing": 16, "all but products": 32, "all": 64}[setting.recomputation]
    if setting.micro_batch > room:
        return Trial(setting, note="memory runs out")
    slower = {"nothing": 1.0, "all but products": 0.9, "all": 0.7}[setting.recomputation]
    return Trial(
        setting, 1000 * slower * (2 if setting.compile_layers else 1) * setting.micro_batch / (1 + setting.micro_batch)
    )


SIZES = [1, 2, 4, 8, 16, 32, 64]


def tried(first: Setting, sizes: Sequence[int] = SIZES, compiled: bool = False) -> list[Trial]:
    return list(search(first, sizes, compiled, speeds))


def test_the_micro_batch_is_doubled_while_it_gains() -> None:
    trials = tried(Setting(2))
    sizes = [trial.setting.micro_batch for trial in trials if trial.setting.recomputation == "nothing"]
    assert sizes == [2, 4, 8, 16, 32] and not trials[4].speed
    again = [trial.setting.micro_batch for trial in trials if trial.setting.recomputation == "all but products"]
    assert again == [32, 64], "it begins where more room may pay"
    assert len({trial.setting for trial in trials}) == len(trials)


def test_what_does_not_fit_is_halved_and_a_step_has_no_room_for_more() -> None:
    trials = tried(Setting(64))
    assert [trial.setting.micro_batch for trial in trials][:3] == [64, 32, 16]
    assert max(trial.setting.micro_batch for trial in tried(Setting(2), [1, 2, 4, 8])) == 8
    assert {trial.setting.micro_batch for trial in tried(Setting(4), [1, 2, 3, 4, 6, 12])} <= {2, 4, 12}


def test_micro_batches_divide_every_step() -> None:
    summary = {"global_batch_tokens": 12 * 8, "shape": {"context": 8}}
    assert first_setting(summary, train_settings(micro_batch=5)) == (Setting(4), [1, 2, 3, 4, 6, 12])
    assert first_setting(summary, train_settings(micro_batch=5, processes=2))[1] == [1, 2, 3, 6]
    assert first_setting({**summary, "batch_ramp": [[0, 4], [9, 12]]}, train_settings())[1] == [1, 2, 4]


def test_compiled_layers_are_tried_if_that_is_wanted() -> None:
    trials = tried(Setting(8), compiled=True)
    assert [trial.setting.compile_layers for trial in trials] == [False] + [True] * (len(trials) - 1)
    keys, lines = best_lines(trials, train_settings(micro_batch=8))
    assert (
        keys == {"micro_batch": 16, "compile_layers": True}
        and "+112%" in lines[0]
        and "    compile_layers: true" in lines
    )


def test_nothing_is_measured_that_nobody_waits_for() -> None:
    measured: list[Setting] = []

    def measure(setting: Setting) -> Trial:
        measured.append(setting)
        return speeds(setting)

    trials = search(Setting(8), SIZES, False, measure)
    assert next(trials).setting == Setting(8) and measured == [Setting(8)]


def test_nothing_to_change_and_nothing_that_fits() -> None:
    train = train_settings(micro_batch=8)
    slower, full = Trial(Setting(16), 9.0), Trial(Setting(8), note="memory runs out")
    settled = {}, ["the config's own settings are the fastest of these"]
    assert best_lines([Trial(Setting(8), 10.0), slower], train) == settled
    assert "nothing fits" in best_lines([full, full], train)[1][0]


def test_a_single_trial_says_that_the_time_was_too_short() -> None:
    train = train_settings(micro_batch=8)
    alone = best_lines([Trial(Setting(8), 10.0)], train)
    assert alone == ({}, ["nothing but this was tried in the time: raise --minutes"])
    full = best_lines([Trial(Setting(8), note="memory runs out")], train)
    assert full == ({}, ["nothing but this, which does not fit, was tried in the time: raise --minutes"])
