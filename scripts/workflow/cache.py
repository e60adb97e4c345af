"""What one plan worked out for the next: a JSON file in the run's folder that may be lost without harm."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from scripts.workflow.manifest import write_atomically


class Cache:
    """Values by name. A file that is absent or damaged holds none, and one that cannot be written is done without."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: dict[str, Any] | None = None
        self._changed = False

    @property
    def held(self) -> dict[str, Any]:
        """The values, read when they are first asked for."""
        if self._held is None:
            self._held = {}
            with contextlib.suppress(OSError, ValueError):
                self._held.update(json.loads(self.path.read_text(encoding="utf-8")))
        return self._held

    def keep(self, name: str, value: Any) -> None:
        """Hold a new value, or another one."""
        self.held[name] = value
        self._changed = True

    def save(self) -> None:
        """Keep the values for the jobs of this run and the next plan in this folder."""
        if not self._changed:  # those of 90,000 files take half a second
            return
        with contextlib.suppress(OSError):
            write_atomically(self.path, json.dumps(self.held))
            self._changed = False

    def forget(self) -> None:
        """Save the values, and hold them no longer: those of 90,000 files take 50 MB."""
        self.save()
        if not self._changed:
            self._held = None
