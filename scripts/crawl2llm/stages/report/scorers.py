"""What the report shows of quality's scorers: a table of them, buckets by language, and the n-grams that the classifier goes by."""

from __future__ import annotations

from typing import Any

from crawl2llm.filters.quality.scorers import BUCKETS
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.page import format_integer, format_significant

LANGUAGES = 12  # rows of the table of buckets, at most


def table(run: Run) -> dict[str, Any]:
    """`scorers`: name, kind, documents, 10th, 50th and 90th percentile, ROC-AUC and on what; `buckets`: language and documents; `ngrams`:
    rows of (n-gram for, effect, n-gram against, effect), and `about`. Empty where the run has none of it.
    """
    tables: dict[str, Any] = {"scorers": [], "buckets": [], "ngrams": [], "about": "", "heads": list(BUCKETS)}
    for name, facts in (run.summary("quality.calibrate", "scorers") or {}).items():
        on = f"{format_integer(facts['positives'])} curated and {format_integer(facts['negatives'])} other documents"
        tables["scorers"].append(
            {
                "name": name,
                "kind": facts["kind"],
                "better": facts["better"],
                "documents": format_integer(facts["documents"]),
                "quantiles": [format_significant(value) for value in facts["quantiles"]] or ["–"] * 3,
                "roc_auc": format_significant(facts["roc_auc"]),
                "on": on,
            }
        )
    counts = run.summary("quality.combine", "buckets") or {}
    ranked = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))[:LANGUAGES]
    tables["buckets"] = [(language, [format_integer(part[name]) for name in BUCKETS]) for language, part in ranked]
    learnt = run.summary("quality.ngrams") or {}
    sides = [nested_value(learnt, "strongest", side) or [] for side in ("for", "against")]
    for number in range(max(map(len, sides))):
        pairs = [side[number] if number < len(side) else None for side in sides]
        tables["ngrams"].append(
            [
                text
                for pair in pairs
                for text in ((pair["ngram"], format_significant(pair["effect"])) if pair else ("", ""))
            ]
        )
    if tables["ngrams"]:
        tables["about"] = (
            f"Effect on the log-odds of curated, of words and n-grams that are in {format_integer(learnt['min_documents'])} or more of "
            f"{format_integer(learnt['documents'])} documents. N-grams share rows by hash."
        )
    return tables
