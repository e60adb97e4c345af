"""What one plan worked out for the next: a JSON file in the run's folder, or beside the code too, that may be lost without harm."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import write_atomically


def read_values(path: Path) -> dict[str, Any]:
    """The values in a file; none if it is absent or damaged."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


class Cache:
    """Values by name. A file that is absent or damaged holds none, and one that cannot be written is done without.

    shared: the same for all folders, for values that depend on their names alone; written like Python's compiled files.
    """

    def __init__(self, path: Path, shared: Path | None = None) -> None:
        self.path, self.shared = path, shared
        self._values: dict[str, Any] | None = None
        self._changed = self._new = False  # what the folder's file lacks, and what the shared one lacks

    @property
    def values(self) -> dict[str, Any]:
        """The values, read when they are first asked for."""
        if self._values is None:
            own_values = read_values(self.path)
            self._values = (read_values(self.shared) if self.shared else {}) | own_values
            self._changed = len(self._values) > len(own_values)  # a job runs a copy of the code, with no shared file
        return self._values

    def keep_value(self, name: str, value: Any) -> None:
        """Hold a new value, or another one."""
        self.values[name] = value
        self._changed = self._new = True

    def save(self) -> None:
        """Keep the values for the jobs of this run and the next plan in this folder."""
        if not self._changed:  # those of 90,000 files take half a second
            return
        if self.shared and self._new and not sys.dont_write_bytecode:
            self._new = False
            with contextlib.suppress(OSError):
                temporary = self.shared.with_name(f"{self.shared.name}.{os.getpid()}")  # other runs write theirs
                write_atomically(temporary, json.dumps(self.values))
                temporary.replace(self.shared)
        with contextlib.suppress(OSError):
            write_atomically(self.path, json.dumps(self.values))
            self._changed = False

    def save_and_forget(self) -> None:
        """Save the values, and hold them no longer: those of 90,000 files take 50 MB."""
        self.save()
        if not self._changed:
            self._values = None
