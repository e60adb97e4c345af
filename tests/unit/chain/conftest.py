"""Fixtures of the tests of quality, which those here use too."""

from __future__ import annotations

from tests.unit.filters.quality.conftest import crawl, fasttext_file  # noqa: F401
