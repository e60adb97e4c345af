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
from crawl2llm.chain.step import EDITS_BEFORE, VERDICTS_BEFORE
from crawl2llm.chain.steps import STEPS, folder_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.nested_dicts import merge_dicts, nest_value
from crawl2llm.core.settings import Settings, setting

S = TypeVar("S", bound=Settings)


class SkippedBy(Settings):
    """What a step is told beside its own settings if it exempts sources (`exempts` in the `steps.py` of its filter)."""

    skipped_by: list[str] = setting(..., "The sources whose `skip_filters` names the filter, sorted.")


def task_settings(kind: type[S], args: argparse.Namespace, section: dict[str, Any]) -> S:
    """The settings of a task: those of its fingerprint, with defaults for keys that this lacks, and the placement keys of the command line.

    A placement key that is no option of the program has no value: to read it raises AttributeError, and its default is not taken for it.
    """
    placement: dict[str, Any] = {}
    absent: list[str] = []
    for key, node in schema_leaves(schema_section(args.step)):
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


class Untyped(Settings):
    """Of a program that is still given a dictionary."""


def add_no_options(parser: argparse.ArgumentParser) -> None:
    """For a program whose options are the inputs of its step."""


@dataclass(frozen=True)
class Program(Generic[S]):
    """The `main` of a step's module: called with the words of a command line, it works and returns the exit status.

    doc: the docstring of the module. kind: the class of the step's settings, with what it is told beside its own (`extra_settings`).
    body: does one task, fills `manifest.counts` and `manifest.summary`, and returns the files that it wrote. add_options: adds what is no
    manifest of a declared input. example: these options as one would type them.
    """

    step: str
    doc: str | None
    kind: type[S]
    body: Callable[[argparse.Namespace, Any, Manifest], list[Path]]
    add_options: Callable[[argparse.ArgumentParser], None] = add_no_options
    example: str = ""

    def __call__(self, argv: list[str] | None = None) -> int:
        return command_line.run_step(self.parser(), self.run_task, argv)

    def run_task(self, args: argparse.Namespace, section: dict[str, Any], manifest: Manifest) -> list[Path]:
        """Do one task. section: the settings as the fingerprint has them."""
        settings = task_settings(self.kind, args, section) if self.kind is not Untyped else section
        return self.body(args, settings, manifest)

    def parser(self) -> argparse.ArgumentParser:
        """An argument parser with the options that all steps share, one for each of the step's `inputs`, and an example."""
        facts = STEPS[self.step]
        inputs = {placement_options.option_flag(name): need for name, need in facts.inputs.items()}
        optional = {placement_options.option_flag(name) for name in facts.optional}
        manifest = command_line.FIRST_TASKS[facts.per] if facts.per else command_line.ONE_TASK_MANIFEST
        words = [
            "--config config.yaml",
            *(
                f"{flag} {_example_manifest(self.step, need)}"
                for flag, need in inputs.items()
                if need != EDITS_BEFORE and flag not in optional
            ),
            *filter(None, [self.example]),
            f"--manifest /tmp/{folder_of(self.step).name}/{manifest}",
        ]
        parser = command_line.step_parser(self.step, self.doc, " ".join(words))
        for flag, need in inputs.items():
            reads_many = _reads_many(self.step, need)
            input_help = _input_help(need, reads_many)
            if need == EDITS_BEFORE or flag in optional:
                parser.add_argument(flag, type=Path, nargs="*", default=[], help=input_help)
            else:
                parser.add_argument(flag, required=True, type=Path, nargs="+" if reads_many else None, help=input_help)
        self.add_options(parser)
        if placement_options.placement_keys(self.step):
            command_line.add_placement_options(parser, self.step)
        return parser


def _reads_many(step: str, need: str) -> bool:
    """Whether a task of `step` reads several manifests of `need`: those of all its tasks."""
    if need in (EDITS_BEFORE, VERDICTS_BEFORE):
        return need == EDITS_BEFORE or STEPS[step].per is None
    return STEPS[need].per not in (None, STEPS[step].per)


def _input_help(need: str, reads_many: bool) -> str:
    """What an option of an input is."""
    if need == EDITS_BEFORE:
        return "manifests of the steps before that edit texts, in their order"
    if need == VERDICTS_BEFORE:
        one_of_each = "; one of each shard where it has one" if reads_many else ""
        return f"manifest of the verdicts before: a filter's select, or ingest.check{one_of_each}"
    if reads_many:
        return f"manifests of {need}"
    per = STEPS[need].per
    return f"manifest of the same {need} {per}" if per else f"manifest of {need}"


def _example_manifest(step: str, need: str) -> str:
    """The manifest, or a pattern of those, of `need` that a task of `step` reads."""
    name = FIRST_VERDICTS if need == VERDICTS_BEFORE else need
    per = STEPS[name].per
    file = command_line.FIRST_TASKS[per] if per else command_line.ONE_TASK_MANIFEST
    return (
        f"{command_line.RESULTS}/main/{folder_of(name)}/{'*.manifest.json' if per and per != STEPS[step].per else file}"
    )
