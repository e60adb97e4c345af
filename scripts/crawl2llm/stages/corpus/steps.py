"""The steps of the stage corpus."""

from __future__ import annotations

from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.shared_reference import main_or_own_config, needs_heldout_search
from crawl2llm.chain.step import ALL_VERDICTS, DOCUMENTS, EDITS_BEFORE, Config, Step


def near_duplicate_settings(config: Config, task: str) -> Config:
    """What main's dedup and split call a near-duplicate."""
    main = main_or_own_config(config)
    return {"similarity": main["corpus"]["split"]["similarity"], "signature": tracked_section(main, "dedup.signature")}


STEPS = {
    "corpus.split": Step(
        inputs={
            "documents": DOCUMENTS,
            "verdicts": ALL_VERDICTS,
            "signals": "dedup.signature",
            "exact": "dedup.exact",
            "pairs": "dedup.verify",
        },
        optional=("signals", "exact", "pairs"),
    ),
    # The documents that main holds out.
    "corpus.reference": Step(
        inputs={"documents": DOCUMENTS, "edits": EDITS_BEFORE, "split": "corpus.split"},
        common=(DOCUMENTS, EDITS_BEFORE, "corpus.split"),
        is_used=needs_heldout_search,
        extra_settings=near_duplicate_settings,
    ),
    # Those of a variant that are among them, or near-duplicates of one.
    "corpus.heldout": Step(
        inputs={
            "documents": DOCUMENTS,
            "edits": EDITS_BEFORE,
            "split": "corpus.split",
            "reference": "corpus.reference",
        },
        per="shard",
        is_used=needs_heldout_search,
    ),
    "corpus.write": Step(
        inputs={
            "documents": DOCUMENTS,
            "verdicts": ALL_VERDICTS,
            "edits": EDITS_BEFORE,
            "split": "corpus.split",
            "heldout": "corpus.heldout",
        },
        optional=("heldout",),
        per="shard",
    ),
}
