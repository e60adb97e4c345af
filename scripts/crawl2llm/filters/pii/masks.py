"""What is done with personal data that was found: kept, replaced by a placeholder, or the document dropped.

Also for texts that are no documents: pairs and preferences from files, which finetune.pairs and align.pairs mask where a run uses the
filter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from crawl2llm.filters.framework.columns import Columns, Numbers, columns_of_document
from crawl2llm.filters.framework.rules import Rule, Rules, failed_rules
from crawl2llm.filters.pii.detect import Detector
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.settings import ScoreSettings, SelectSettings


def placeholder_for(kind: str, settings: SelectSettings) -> str:
    """What stands in the place of a find. settings: `pii.select`."""
    replacement = settings.replacements.get(kind)
    return settings.placeholder.replace("{kind}", kind.upper()) if replacement is None else replacement


def action_for(kind: str, settings: SelectSettings) -> str:
    """`mask`, `drop` or `keep`."""
    return str(settings.actions.get(kind, "mask"))


def rules(settings: SelectSettings) -> Rules:
    """What drops a document under the settings of `pii.select`: a kind whose action is `drop` from `drop_from` finds on, and more than
    `total_max` finds of all kinds, except for those that are kept.
    """
    counted = [kind for kind in KINDS if action_for(kind, settings) != "keep"]

    def total_findings(columns: Columns) -> Numbers:
        return np.sum([columns.values(kind) for kind in counted], axis=0)

    by_kind = [Rule(kind, kind, ">=", "drop_from") for kind in KINDS if action_for(kind, settings) == "drop"]
    return [*by_kind, Rule("total_max", total_findings, ">", "total_max")] if counted else by_kind


class Masks:
    """`masked_counts`: how many of each kind were replaced."""

    def __init__(self, score: ScoreSettings, select: SelectSettings) -> None:
        """The settings of `pii.score` and `pii.select`."""
        self.detect = Detector(score.kinds, score.regions)
        self.settings = select
        self.rules = rules(self.settings)
        self.masked_counts: Counter[str] = Counter()

    def __call__(self, texts: Sequence[str], counted: bool = True) -> list[str] | None:
        """The texts of one row with placeholders; None if the filter would drop a document with what they hold.

        Nobody says which language they are in: phone numbers are found with + or 00 alone. counted: whether `masked_counts` counts them.
        """
        findings_by_text = [self.detect(text) for text in texts]
        counts = Counter(dict.fromkeys(KINDS, 0))
        counts.update(finding.kind for findings in findings_by_text for finding in findings)
        if any(failed_rules(self.rules, columns_of_document(counts), self.settings)):
            return None
        out = []
        for text, findings in zip(texts, findings_by_text, strict=True):
            parts, at = [], 0
            for finding in findings:
                if action_for(finding.kind, self.settings) != "keep":
                    parts += [text[at : finding.start], placeholder_for(finding.kind, self.settings)]
                    at = finding.end
                    self.masked_counts[finding.kind] += counted
            out.append("".join([*parts, text[at:]]))
        return out
