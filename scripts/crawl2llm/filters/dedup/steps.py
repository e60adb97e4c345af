"""The steps of the filter dedup."""

from __future__ import annotations

from crawl2llm.chain.step import DOCUMENTS, EDITS_BEFORE, SCORE, Config, Filter, Step


def writes_export(config: Config) -> bool:
    """Whether the config asks for a corpus that later runs are compared with."""
    return bool(config["dedup"]["export"]["write"])


FILTER = Filter(
    {
        "signature": SCORE,
        "exact": Step(inputs={"signals": ".signature"}, exempts=True),
        "band": Step(inputs={"signals": ".signature", "exact": ".exact"}, per="band"),
        "sets": Step(
            inputs={
                "pairs": ".band",
                "exact": ".exact",
                "signals": ".signature",
                "documents": DOCUMENTS,
                "edits": EDITS_BEFORE,
            },
            per="shard",
        ),
        "verify": Step(inputs={"sets": ".sets", "pairs": ".band"}, per="part"),
        "select": Step(inputs={"pairs": ".verify", "exact": ".exact", "signals": ".signature"}),
        "export": Step(
            inputs={"documents": DOCUMENTS, "edits": EDITS_BEFORE, "signals": ".signature", "split": "corpus.split"},
            per="shard",
            is_used=writes_export,
            exempts=True,
            follows="corpus.split",
        ),
    }
)
