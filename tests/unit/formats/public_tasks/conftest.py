"""Fixtures of the tests of evaluation, which those here use too."""

from __future__ import annotations

from tests.unit.stages.evaluate.conftest import inputs  # noqa: F401
