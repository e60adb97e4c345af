"""Fixtures that tests of the stages share."""

from __future__ import annotations

from tests.unit.stages.evaluate.conftest import inputs  # noqa: F401
