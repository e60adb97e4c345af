"""What the report shows of quality's scorers: a table of them, buckets by language, and the n-grams that the classifier goes by."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.scorers import BUCKETS
from crawl2llm.formats.run_records import Run, dig
from crawl2llm.stages.report.page import integer, significant

LANGUAGES = 12  # rows of the table of buckets, at most


def table(run: Run) -> dict[str, Any]:
    """`scorers`: name, kind, documents, 10th, 50th and 90th percentile, ROC-AUC and on what; `buckets`: language and documents; `ngrams`:
    rows of (n-gram for, effect, n-gram against, effect), and `about`. Empty where the run has none of it.
    """
    found: dict[str, Any] = {"scorers": [], "buckets": [], "ngrams": [], "about": "", "heads": list(BUCKETS)}
    for name, facts in (run.summary("quality.calibrate", "scorers") or {}).items():
        on = f"{integer(facts['positives'])} curated and {integer(facts['negatives'])} other documents"
        found["scorers"].append(
            {
                "name": name,
                "kind": facts["kind"],
                "better": facts["better"],
                "documents": integer(facts["documents"]),
                "quantiles": [significant(one) for one in facts["quantiles"]] or ["–"] * 3,
                "roc_auc": significant(facts["roc_auc"]),
                "on": on,
            }
        )
    counts = run.summary("quality.combine", "buckets") or {}
    ranked = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))[:LANGUAGES]
    found["buckets"] = [(language, [integer(part[name]) for name in BUCKETS]) for language, part in ranked]
    learnt = run.summary("quality.ngrams") or {}
    sides = [dig(learnt, "strongest", side) or [] for side in ("for", "against")]
    for number in range(max(map(len, sides))):
        pairs = [side[number] if number < len(side) else None for side in sides]
        found["ngrams"].append(
            [text for one in pairs for text in ((one["ngram"], significant(one["effect"])) if one else ("", ""))]
        )
    if found["ngrams"]:
        found["about"] = (
            f"Effect on the log-odds of curated, of words and n-grams that are in {integer(learnt['min_documents'])} or more of "
            f"{integer(learnt['documents'])} documents. N-grams share rows by hash."
        )
    return found
