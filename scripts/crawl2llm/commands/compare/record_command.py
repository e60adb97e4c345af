"""`crawl2llm record` as a command of its own."""

from __future__ import annotations

from crawl2llm.commands.compare.command import write_record as main

__all__ = ["main"]
