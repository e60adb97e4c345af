"""Questions and answers from files that are items of evaluation sets, so that nothing is trained on them."""

from __future__ import annotations

from pathlib import Path

from crawl2llm.core.errors import InputError
from crawl2llm.filters.decontaminate import cuts, items
from crawl2llm.filters.decontaminate.search import build_index
from crawl2llm.filters.pair_masking import GuardSettings


class Guard:
    """Says which evaluation set rows to train on have an item of.

    manifest: of decontaminate.index; None: nothing is searched for. settings: of the step, what it is told of the filter.
    """

    def __init__(self, manifest: Path | None, settings: GuardSettings | None) -> None:
        self.index = None
        if manifest:
            if settings is None:
                raise InputError(f"{manifest}: the config does not use the filter decontaminate, whose index this is")
            guarded_items, search_settings = items.read_items(manifest)
            self.index = build_index(guarded_items, search_settings)
            self.overlap_max = cuts.overlap_limit(settings.overlap_max, self.index.method)

    def drop_reason(self, question: str, *answers: str | None) -> str:
        """`in_hellaswag` for a question with one of its answers that hold an item of hellaswag; "" for one that holds none."""
        if self.index is None:
            return ""
        texts = [f"{question}\n{answer}" for answer in answers if answer] or [question]
        matches = [
            match
            for text_matches in self.index.find_matches(texts)
            for match in text_matches
            if match.overlap > self.overlap_max
        ]
        return f"in_{min(match.set for match in matches)}" if matches else ""
