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

    key: str  # such as kenlm: the folder is .kenlm, the variable CRAWL2LLM_KENLM, the target kenlm-tools
    name: str  # begins a sentence of a message
    plural: bool = False
    target: str = ""  # another one than by the key
    cost: str  # of `make TARGET`, in words
    # Of a whole folder. The first is there in every version, so that a folder of something else is never replaced.
    files: tuple[str, ...]
    programs: tuple[str, ...] = ()  # files that can be started
    version: str = ""  # the one that is called here
    has_version: Callable[[Path], bool] | None = None  # whether a whole folder is of it; None: its first file says so
    requirement: str = ""  # what another tool in the folder would be of; "": another version

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target or f"{self.key}-tools")
        object.__setattr__(self, "requirement", self.requirement or f"another version than {self.version}")

    @property
    def variable(self) -> str:
        """The environment variable that names the folder."""
        return f"CRAWL2LLM_{self.key.upper()}"

    @property
    def default_folder(self) -> str:
        """The folder's name beside .venv."""
        return f".{self.key}"

    @property
    def mark(self) -> str:
        """What tells a folder of the tool, of any version."""
        return self.files[0]

    def is_complete(self, folder: Path) -> bool:
        """Whether a folder has all of the tool's files."""
        return all((folder / name).is_file() for name in (*self.files, *self.programs)) and all(
            os.access(folder / name, os.X_OK) for name in self.programs
        )

    def is_required(self, folder: Path) -> bool:
        """Whether a complete folder is of the version that is called here."""
        if self.has_version:
            return self.has_version(folder)
        return (folder / self.mark).read_text(encoding="utf-8").strip() == self.version

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
