"""The program of a step: its options are the inputs that the step declares, and its settings an object of the class that declares them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from crawl2llm.chain import command_line, placement_options
from crawl2llm.chain.config_schema import schema_leaves, schema_section
from crawl2llm.chain.filter_order import FIRST_VERDICTS
from crawl2llm.chain.model_registry import BASE_STEP, MAKERS
from crawl2llm.chain.step import ALL_VERDICTS, EDITS_BEFORE, LANGUAGES, LANGUAGES_BEFORE, VERDICTS_BEFORE, alternatives
from crawl2llm.chain.steps import STEPS, folder_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from crawl2llm.core.settings import Settings, setting

S = TypeVar("S", bound=Settings)


class SkippedBy(Settings):
    """What a step is told beside its own settings if it exempts sources (`exempts` in the `steps.py` of its filter)."""

    skipped_by: list[str] = setting(..., "The sources whose `skip_filters` names the filter, sorted.")


def task_settings(kind: type[S], args: argparse.Namespace, section: dict[str, Any], step: str = "") -> S:
    """The settings of a task: those of its fingerprint, with defaults for keys that this lacks, and the placement keys of the command line.

    step: whose placement keys the command line has; "": the program's own.
    A placement key that is no option of the program has no value: to read it raises AttributeError, and its default is not taken for it.
    """
    placement: dict[str, Any] = {}
    absent: list[str] = []
    for key, node in schema_leaves(schema_section(step or args.step)):
        name = placement_options.attribute_name(key)
        if node.get("placement") and hasattr(args, name):
            placement = merge_dicts(placement, nest_value(key, getattr(args, name)))
        elif node.get("placement"):
            absent.append(key)
    settings = kind.model_validate(merge_dicts(section, placement))
    for key in absent:
        *path, last = key.split(".")
        holder: Any = settings
        for part in path:
            holder = getattr(holder, part)
        del holder.__dict__[last]
    return settings


def add_no_options(parser: argparse.ArgumentParser) -> None:
    """For a program whose options are the inputs of its step."""


@dataclass(frozen=True)
class Program(Generic[S]):
    """The `main` of a step's module: called with the words of a command line, it works and returns the exit status.

    doc: the docstring of the module. kind: the class of the step's settings, with what it is told beside its own (`extra_settings`).
    body: does one task, fills `manifest.counts` and `manifest.summary`, and returns the files that it wrote. add_options: adds what is no
    manifest of a declared input. example: these options as one would type them. always: see command_line.step_parser.
    """

    step: str
    doc: str | None
    kind: type[S]
    body: Callable[[argparse.Namespace, S, Manifest], list[Path]]
    add_options: Callable[[argparse.ArgumentParser], None] = add_no_options
    example: str = ""
    always: bool = False

    def __call__(self, argv: list[str] | None = None) -> int:
        return command_line.run_step(self.parser(), self.run_task, argv)

    def run_task(self, args: argparse.Namespace, section: dict[str, Any], manifest: Manifest) -> list[Path]:
        """Do one task. section: the settings as the fingerprint has them."""
        return self.body(args, task_settings(self.kind, args, section), manifest)

    def parser(self) -> argparse.ArgumentParser:
        """An argument parser with the options that all steps share, one for each of the step's `inputs`, and an example."""
        facts = STEPS[self.step]
        inputs = {placement_options.option_flag(name): needs for name, needs in facts.inputs.items()}
        optional = {placement_options.option_flag(name) for name in facts.optional}
        manifest = command_line.FIRST_TASKS[facts.per] if facts.per else command_line.ONE_TASK_MANIFEST
        words = [
            "--config config.yaml",
            *(
                f"{flag} {_example_manifest(self.step, alternatives(needs)[0])}"
                for flag, needs in inputs.items()
                if needs != EDITS_BEFORE and flag not in optional
            ),
            *filter(None, [self.example]),
            f"--manifest /tmp/{folder_of(self.step).name}/{manifest}",
        ]
        parser = command_line.step_parser(self.step, self.doc, " ".join(words), self.always)
        for flag, needs in inputs.items():
            reads_many = any(_reads_many(self.step, need) for need in alternatives(needs))
            input_help = _input_help(self.step, needs, reads_many)
            if needs == EDITS_BEFORE or flag in optional:
                parser.add_argument(flag, type=Path, nargs="*", default=[], help=input_help)
            else:
                parser.add_argument(flag, required=True, type=Path, nargs="+" if reads_many else None, help=input_help)
        self.add_options(parser)
        if placement_options.placement_keys(self.step):
            command_line.add_placement_options(parser, self.step)
        return parser


def _reads_many(step: str, need: str) -> bool:
    """Whether a task of `step` reads several manifests of `need`: those of all its tasks."""
    if need in (EDITS_BEFORE, ALL_VERDICTS):
        return True
    if need == VERDICTS_BEFORE:
        return STEPS[step].per is None
    if STEPS[step].models_read and (need in MAKERS or STEPS[need].per == "model"):
        return True
    return STEPS[LANGUAGES if need == LANGUAGES_BEFORE else need].per not in (None, STEPS[step].per)


def _input_help(step: str, need: str | tuple[str, ...], reads_many: bool) -> str:
    """What an option of an input is."""
    if need == BASE_STEP and step in MAKERS:
        return "manifest of the model that it is made from"
    if not isinstance(need, str):
        return f"{'manifests' if reads_many else 'manifest'} of any of {', '.join(need)}"
    if need == EDITS_BEFORE:
        return "manifests of the steps before that edit texts, in their order"
    if need == ALL_VERDICTS:
        return "manifests of ingest.check and of every filter's select, in their order"
    if need == VERDICTS_BEFORE:
        one_of_each = "; one of each shard where it has one" if reads_many else ""
        return f"manifest of the verdicts before: a filter's select, or ingest.check{one_of_each}"
    if need == LANGUAGES_BEFORE:
        return f"{_input_help(step, LANGUAGES, reads_many)}, if that filter comes before"
    if reads_many:
        return f"manifests of {need}"
    per = STEPS[need].per
    return f"manifest of the same {need} {per}" if per else f"manifest of {need}"


def _example_manifest(step: str, need: str) -> str:
    """The manifest, or a pattern of those, of `need` that a task of `step` reads."""
    name = FIRST_VERDICTS if need in (ALL_VERDICTS, VERDICTS_BEFORE) else need
    per = STEPS[name].per
    file = command_line.FIRST_TASKS[per] if per else command_line.ONE_TASK_MANIFEST
    return (
        f"{command_line.RESULTS}/main/{folder_of(name)}/{'*.manifest.json' if per and per != STEPS[step].per else file}"
    )
