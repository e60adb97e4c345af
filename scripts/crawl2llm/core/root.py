"""The project's folder, and the one in it that holds the import package."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE_FOLDER = "scripts"  # below a project, or a frozen copy of it: what PYTHONPATH names
CODE = ROOT / CODE_FOLDER
