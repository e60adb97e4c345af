"""Keep the documents that are under an allowed licence; those of curated sources and of sources that skip this filter stay.

Rules: `unknown` (no licence is known), `licence` (one that is not allowed) and `said` (not said in an allowed way), which compare no
number, and `beside` (more other licences are named than `beside_max`).
"""

from __future__ import annotations

from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.columns import Columns, Truths
from crawl2llm.filters.framework.rules import Match, Rule, Rules
from crawl2llm.filters.licence.names import is_allowed
from crawl2llm.filters.licence.settings import SelectSettings


def has_licence(columns: Columns) -> Truths:
    """Of which documents a licence is known."""
    return columns.has_value("licence")


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `licence.select`, in the order in which the first that fails gives the reason."""

    def find_unknown(name: str | None) -> str | None:
        return "no licence is known" if name is None and settings.unknown == "drop" else None

    def find_forbidden(name: str | None) -> str | None:
        return None if name is None or is_allowed(name, settings.allowed) else name

    def find_evidence(evidence: str | None) -> str | None:
        return None if evidence in settings.said else evidence

    return [
        Match("unknown", "licence", find_unknown),
        Match("licence", "licence", find_forbidden),
        Match("said", "said", find_evidence, when=has_licence),
        Rule("beside", "beside", ">", "beside_max", when=has_licence),
    ]


main = select.program("licence.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
