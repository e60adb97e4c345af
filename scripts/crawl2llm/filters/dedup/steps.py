"""The steps of the filter dedup."""

from __future__ import annotations

from crawl2llm.chain.step import DOCUMENTS, EDITS_BEFORE, SCORE, Config, Filter, Step


def writes_export(config: Config) -> bool:
    """Whether the config asks for a corpus that later runs are compared with."""
    return bool(config["dedup"]["export"]["write"])


FILTER = Filter(
    {
        "signature": SCORE,
        "exact": Step((".signature",), exempts=True),
        "band": Step((".signature", ".exact"), per="band"),
        "sets": Step((".band", ".exact", ".signature", DOCUMENTS, EDITS_BEFORE), per="shard"),
        "verify": Step((".sets", ".band"), per="part"),
        "select": Step((".verify", ".exact", ".signature")),
        "export": Step(
            (DOCUMENTS, EDITS_BEFORE, ".signature", "corpus.split"),
            per="shard",
            is_used=writes_export,
            exempts=True,
            follows="corpus.split",
        ),
    }
)
