"""Tools of other environments, each made once by a make target: where one is, and what to do if it cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crawl2llm.core import code_snapshot
from crawl2llm.core.root import ROOT


@dataclass(frozen=True, kw_only=True)
class ExternalTool:
    """A tool in a folder of its own, which `make TARGET` makes in DEFAULT_FOLDER unless the environment variable VARIABLE names another."""

    name: str  # begins a sentence of a message
    plural: bool
    target: str
    cost: str  # of `make TARGET`, in words
    variable: str
    default_folder: str  # beside .venv
    mark: str  # a path below the folder: there in every version, so that a folder of something else is never replaced
    requirement: str  # what another tool in the folder would be of: "another version than 1.2"
    is_complete: Callable[[Path], bool]  # whether a folder has all of its files
    is_required: Callable[[Path], bool]  # whether a complete folder is of the version that is called here

    def folder(self) -> Path:
        """The tool's folder."""
        return Path(os.environ.get(self.variable) or code_snapshot.project_folder(ROOT) / self.default_folder)

    def problem(self, folder: Path | None = None) -> str | None:
        """Why the tool in a folder, its own if none is given, cannot be used, and how to make it; None if it can."""
        folder = folder or self.folder()
        verb, pronoun = ("are", "them") if self.plural else ("is", "it")
        remedy = f"make {pronoun} once, with a network: make {self.target} ({self.cost}; {self.variable} names another folder)"
        if not self.is_complete(folder):
            return f"{self.name} {verb} not in {folder}: {remedy}"
        if not self.is_required(folder):
            return f"{self.name} in {folder} {verb} of {self.requirement}: {remedy}"
        return None
