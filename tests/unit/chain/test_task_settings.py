"""What a program is given: its settings as an object, with placement keys from the command line."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import ValidationError

from crawl2llm.chain import command_line, config
from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.fingerprint import tracked_settings
from crawl2llm.chain.placement_options import LAUNCHER
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.stage_names import FILTER_NAMES
from crawl2llm.chain.steps import STEPS, program_of, task_models
from crawl2llm.chain.task_settings import SkippedBy, task_settings, with_settings
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import CODE
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.stages.crawl.settings import RenderSettings
from crawl2llm.stages.pretrain.settings import TrainSettings


def program_file(step: str) -> Path:
    return (CODE / program_of(step).replace(".", "/")).with_suffix(".py")


class Task(ScoreSettings, SkippedBy):
    """As of lines.score."""


def arguments(step: str, *words: str, target: bool | str | None = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.set_defaults(step=step)
    if target is not None:
        command_line.add_placement_options(parser, step, target)
    return parser.parse_args(words)


def test_a_key_that_the_fingerprint_lacks_has_its_default() -> None:
    section = tracked_section(config.validate({"lines": {"score": {"words_min": 7}}}), "lines.score")
    assert "navigation" not in section  # it is tracked unless it has its default
    settings = task_settings(Task, arguments("lines.score"), {**section, "skipped_by": ["web"]})
    assert (settings.words_min, settings.navigation, settings.skipped_by) == (7, False, ["web"])


def test_what_a_step_is_told_is_declared() -> None:
    section = tracked_section(config.validate({}), "lines.score")
    with pytest.raises(ValidationError, match="skipped_by"):
        task_settings(Task, arguments("lines.score"), section)
    with pytest.raises(ValidationError, match="more"):
        task_settings(Task, arguments("lines.score"), {**section, "skipped_by": [], "more": 1})


def test_placement_keys_are_those_of_the_command_line() -> None:
    section = tracked_section(config.validate({}), "crawl.render")
    assert "workers" not in section
    assert task_settings(RenderSettings, arguments("crawl.render", "--workers=5"), section).workers == 5


def test_keys_of_a_section_are_too() -> None:
    section = tracked_section(config.validate({}), "pretrain.train")
    given = arguments("pretrain.train", "--parallel-tensor=2", "--micro-batch=3")
    settings = task_settings(TrainSettings, given, section)
    assert (settings.parallel.tensor, settings.parallel.pipeline, settings.micro_batch) == (2, 1, 3)
    launched = task_settings(TrainSettings, arguments("pretrain.train", "--processes=4", target=LAUNCHER), section)
    assert launched.processes == 4


def test_a_placement_key_that_is_no_option_has_no_value() -> None:
    """Its default would be taken for what the config says."""
    section = tracked_section(config.validate({}), "pretrain.train")
    settings = task_settings(TrainSettings, arguments("pretrain.train", target=None), section)
    for read in (lambda: settings.micro_batch, lambda: settings.processes, lambda: settings.parallel.tensor):
        with pytest.raises(AttributeError):
            read()
    assert settings.engine == "deepspeed" and TrainSettings().parallel.tensor == 1


def test_a_body_is_given_an_object() -> None:
    args = arguments("lines.score")
    bodies = with_settings(Task, lambda args, settings, manifest: [Path(str(settings.words_min))])
    section = tracked_section(config.validate({}), "lines.score")
    assert bodies(args, {**section, "skipped_by": []}, Manifest("lines.score", "")) == [Path("3")]


TYPED = {
    step: found[1]
    for step in STEPS
    if (found := re.search(r"with_settings\((\w+), body\)", program_file(step).read_text(encoding="utf-8")))
}


def test_programs_are_given_objects() -> None:
    assert len(TYPED) >= 3


@pytest.mark.parametrize("step", TYPED)
def test_a_program_declares_all_that_its_step_is_told(step: str) -> None:
    """Its class takes the settings of the fingerprint as they are: of the defaults, and with every filter."""
    kind = getattr(import_module(program_of(step)), TYPED[step])
    assert issubclass(kind, settings_class(step))
    first = ["url", "language"]
    for filters in (None, [*first, *(name for name in FILTER_NAMES if name not in first)]):
        complete = config.validate({} if filters is None else {"filters": filters})
        for task in task_models(step, complete):
            given = tracked_settings(step, complete, task)
            settings = task_settings(kind, arguments(step), given)
            assert all(getattr(settings, key) == value for key, value in given.items() if not isinstance(value, dict))
