"""Fixtures that tests of the stages share."""

from __future__ import annotations

from tests.unit.stages.report.conftest import manifests, run_folder  # noqa: F401
