"""What the program of a step is given: its settings as an object of the class that its stage or filter declares."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from crawl2llm.chain import placement_options
from crawl2llm.chain.config_schema import schema_leaves, schema_section
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


def with_settings(
    kind: type[S], body: Callable[[argparse.Namespace, S, Manifest], list[Path]]
) -> Callable[[argparse.Namespace, dict[str, Any], Manifest], list[Path]]:
    """The body of a step's program for `command_line.run_step`, which gives it a section of the config. body: is given an object."""

    def body_given_section(args: argparse.Namespace, section: dict[str, Any], manifest: Manifest) -> list[Path]:
        return body(args, task_settings(kind, args, section), manifest)

    return body_given_section
