"""Fixtures of the tests of report, which those here use too."""

from __future__ import annotations

from tests.unit.stages.report.conftest import manifests, run_folder  # noqa: F401
