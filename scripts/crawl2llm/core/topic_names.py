"""Names and numbers that the steps of topics and the report share."""

from __future__ import annotations

ALL = "all"  # the name of the only model where documents are not told apart by language
OTHER = "other"  # the topic of documents of languages that have no model, and of those without any of its terms
MAP = "map.parquet"  # of topics.train
PARTS = 32  # of hosts; how widely their shares differ says how sure a share is (stages/report/topic_differences.py)
