"""Fixtures that tests of the stages share."""

from __future__ import annotations

from tests.unit.filters.quality.conftest import crawl, fasttext_file  # noqa: F401
