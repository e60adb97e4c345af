"""The program of a step: its options are the inputs that the step declares, its settings an object."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from crawl2llm.chain import command_line, config
from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.fingerprint import tracked_settings
from crawl2llm.chain.placement_options import LAUNCHER
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.chain.stage_names import FILTER_NAMES
from crawl2llm.chain.step import ALL_VERDICTS, EDITS_BEFORE, VERDICTS_BEFORE, Step, alternatives
from crawl2llm.chain.step_program import Program, SkippedBy, task_settings
from crawl2llm.chain.steps import STEPS, is_used, program_of, task_models
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.stages.crawl.settings import RenderSettings
from crawl2llm.stages.pretrain.settings import TrainSettings


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
    program = Program("lines.score", "", Task, lambda args, settings, manifest: [Path(str(settings.words_min))])
    section = tracked_section(config.validate({}), "lines.score")
    assert program.run_task(args, {**section, "skipped_by": []}, Manifest("lines.score", "")) == [Path("3")]


def program_of_step(step: str) -> Program[Any]:
    program: Program[Any] = import_module(program_of(step)).main
    return program


@pytest.mark.parametrize("step", STEPS)
def test_a_program_declares_all_that_its_step_is_told(step: str) -> None:
    """Its class takes the settings of the fingerprint as they are: of the defaults, and with every filter."""
    kind = program_of_step(step).kind
    assert issubclass(kind, settings_class(step))
    first = ["url", "language"]
    for filters in (None, [*first, *(name for name in FILTER_NAMES if name not in first)]):
        complete = config.validate({} if filters is None else {"filters": filters})
        for task in task_models(step, complete) if is_used(step, complete) else ():
            given = tracked_settings(step, complete, task)
            settings = task_settings(kind, arguments(step), given)
            taken = settings.model_dump(by_alias=True, exclude_unset=True)
            assert all(taken[key] == value for key, value in given.items() if not isinstance(value, dict))


WITH_INPUTS = [step for step, facts in STEPS.items() if facts.inputs]


def example(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What the parser makes of the example in its help."""
    _, module, *words = shlex.split((parser.epilog or "").partition("\n")[2])[1:]
    assert module.startswith("crawl2llm.")
    return command_line.parse_arguments(parser, words)


@pytest.mark.parametrize("step", WITH_INPUTS)
def test_the_example_in_the_help_is_a_command_line(step: str) -> None:
    args = example(program_of_step(step).parser())
    assert args.step == step and args.config == "config.yaml"
    for name, needs in STEPS[step].inputs.items():
        need = alternatives(needs)[0]
        value = getattr(args, name)
        paths = value if isinstance(value, list) else [value]
        assert paths or need == EDITS_BEFORE or name in STEPS[step].optional
        assert all(isinstance(path, Path) and path.name.endswith("manifest.json") for path in paths)
        several = not isinstance(needs, str) or STEPS[step].models_read
        numbered = need not in (ALL_VERDICTS, EDITS_BEFORE, VERDICTS_BEFORE) and not several
        if numbered and name not in STEPS[step].optional:
            assert isinstance(value, list) == (STEPS[need].per not in (None, STEPS[step].per))


def test_a_missing_input_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = program_of_step("tokenize.encode").parser()
    with pytest.raises(SystemExit):
        parser.parse_args(["--config", "a", "--manifest", "b", "--corpus", "c"])
    assert "the following arguments are required: --tokenizer" in capsys.readouterr().err


def test_what_a_task_reads_of_each_shard_and_of_all() -> None:
    """The same shard of a step by shard; all of one that is numbered in another way; the one of a step with one task."""
    args = example(program_of_step("dedup.sets").parser())
    assert args.signals.name == args.documents.name == "00000.manifest.json" and args.exact.name == "manifest.json"
    assert [path.name for path in args.pairs] == ["*.manifest.json"] and args.edits == []
    assert isinstance(example(program_of_step("quality.train").parser()).verdicts, list)
    assert isinstance(example(program_of_step("quality.fasttext").parser()).verdicts, Path)


def test_an_input_may_be_of_one_of_several_steps() -> None:
    """A model is made by one of them, and is one manifest; a page shows all."""
    args = example(program_of_step("evaluate.model").parser())
    assert args.model == Path("results/main/pretrain/train/manifest.json")
    assert args.manifest.name == "base.manifest.json" and [path.name for path in args.tokens] == ["*.manifest.json"]
    assert isinstance(example(program_of_step("report.render").parser()).manifests, list)
    parser = program_of_step("align.train").parser()
    assert "manifest of the model that it is made from" in " ".join(parser.format_help().split())
    args = example(program_of_step("compress.export").parser())  # of a model and of those that it is made from
    assert all(isinstance(each, list) for each in (args.models, args.evaluations, args.record, args.tokens))


def test_what_is_read_of_main_is_no_need() -> None:
    step = Step(("a.b",), inputs={"model": ("a.b", "c.d"), "texts": "e.f", "shared": "g.h"}, common=("g.h",))
    assert step.needs == ("a.b", "c.d", "e.f") and step.common == ("g.h",)


def test_placement_keys_are_options_too() -> None:
    parser = program_of_step("quality.transformers").parser()
    assert example(parser).device == "auto"
