"""Snakemake's dry run, as it is printed, read into tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from crawl2llm.chain import steps
from crawl2llm.core.manifest import task_of
from crawl2llm.training import gpus

RULE = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):$")
FACT_LINE = re.compile(r"^ {4}(\w+): (.*)$")
ERROR = re.compile(r"error: |[\w.]*(Error|Exception)\b")
# Snakemake says one of them where it has planned to the end.
COMPLETE_MESSAGES = ("This was a dry-run", "Nothing to be done")
FOLDER_LINE = re.compile(r"^  Working directory: (.*)$")


@dataclass
class Task:
    """One task that would run. facts: what Snakemake prints of it by name, such as `input`, `reason`, `threads`."""

    rule: str
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """`language.score` of the rule language_score."""
        return steps.step_of(self.rule)

    @property
    def inputs(self) -> list[str]:
        """The paths of its input files."""
        return list(filter(None, self.facts.get("input", "").split(", ")))

    @cached_property
    def manifest(self) -> Path:
        """The manifest that it writes; of several shards, that of the first."""
        outputs = self.facts.get("output", "").split(", ")
        return Path(next((name for name in outputs if name.endswith("manifest.json")), outputs[0]))

    @cached_property
    def variant(self) -> str:
        """The variant in whose folder it writes: results/<variant>/<stage>/<step>/…"""
        return variant_and_step(self.manifest)[0]

    @cached_property
    def id(self) -> str:
        """The shard, band or model; "" of a one-task step."""
        return task_of(self.manifest)

    @property
    def threads(self) -> int:
        """Cores that it takes."""
        return int(self.facts.get("threads", 1))

    @property
    def requested_gpus(self) -> int | None:
        """GPUs that the profile asks for; None if it asks for none."""
        match = re.search(r"\bcard=(\d+)", self.facts.get("resources", ""))
        return int(match.group(1)) if match else None

    @property
    def profile_gpu(self) -> str:
        """The GPU's name in what the profile asks for (`gpus.name_in_profile`)."""
        match = re.search(r"\bgres=(\S+)", self.facts.get("resources", ""))
        return gpus.name_in_profile(match.group(1).rstrip(",")) if match else ""


def variant_and_step(manifest: Path) -> tuple[str, str]:
    """(variant, `stage.step`) of a manifest's path, results/<variant>/<stage>/<step>/…; empty words if it is none."""
    parts = manifest.parts
    return (parts[-4], f"{parts[-3]}.{parts[-2]}") if len(parts) > 3 else ("", "")


def parse_output(lines: Iterable[str]) -> tuple[list[Task], list[str]]:
    """(tasks in the order of the plan, without the target rule; lines of errors) from what a dry run prints."""
    tasks: list[Task] = []
    errors: list[str] = []
    inside = False
    for line in lines:
        if match := RULE.match(line):
            tasks.append(Task(match.group(1)))
            inside = True
        elif inside and (match := FACT_LINE.match(line)):
            tasks[-1].facts.setdefault(match.group(1), match.group(2))
        elif ERROR.match(line) or errors:
            errors.append(line.rstrip())
        else:
            inside = False
    return [task for task in tasks if task.rule != "all"], errors


def working_directory(lines: Iterable[str]) -> Path:
    """The folder that the run works in, to which its paths are relative."""
    return next((Path(match.group(1)) for line in lines if (match := FOLDER_LINE.match(line))), Path())
