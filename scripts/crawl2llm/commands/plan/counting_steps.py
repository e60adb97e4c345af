"""By which step's kept documents the work of a step is measured, and which steps have as much to do as before."""

from __future__ import annotations

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.step import DOCUMENTS, VERDICTS_BEFORE

# The step whose kept documents (pairs, of a fine-tuning) say how much a step has to do, where that is not the last of what it reads.
COUNTED_AT = {
    "dedup.band": "dedup.exact",
    "dedup.sets": "dedup.exact",
    "dedup.verify": "dedup.exact",
    "dedup.select": "dedup.signature",
    "quality.calibrate": VERDICTS_BEFORE,
    "quality.combine": VERDICTS_BEFORE,
    "quality.select": VERDICTS_BEFORE,
    "corpus.split": VERDICTS_BEFORE,
    "corpus.heldout": DOCUMENTS,
    "corpus.write": DOCUMENTS,
    "tokenize.encode": "corpus.write",
    "tokenize.reencode": "corpus.write",
    "finetune.train": "finetune.pairs",
    "align.reward": "align.pairs",
    "align.train": "align.pairs",
}
# These have as much to do as before.
UNCHANGED_WORK = (
    "crawl.render",
    *steps.SYNTHESIZE,
    "ingest.list",
    "ingest.fetch",
    "corpus.reference",
    "pretrain.published",
    "pretrain.continue",
    "pretrain.mix",
    "pretrain.pack",
    "pretrain.plan",
    "pretrain.rung",
    "pretrain.halve",
    "decontaminate.index",
    "compress.prune",
    "compress.teach",
    "compress.distil",
    "compress.merge",
    "compress.quantize",
    "evaluate.items",
    "evaluate.model",
    "compress.export",
    "evaluate.stage",
    "evaluate.public",
    "evaluate.found",
    "evaluate.curve",
    "evaluate.common",
    "evaluate.generate",
    "evaluate.judge",
    "report.inspect",
    "report.render",
    "report.compare",
)
# Their manifests do not count what they read: bands, models, and pairs, of which a document gives several.
UNCOUNTED = {
    "boilerplate.frequent", "dedup.band", "dedup.sets", "dedup.verify", "paragraphs.repeated", "substrings.shared", "substrings.repeated",
    "heuristics.calibrate", "quality.train", "quality.lm", "quality.ngrams", "quality.calibrate", "topics.train",
    "tokenize.train", "tokenize.compare", "pretrain.train",
    "finetune.pairs",
    "finetune.train", "align.pairs", "align.reward", "align.train",
}  # fmt: skip


def counting_step(step: str, filters: list[str]) -> str | None:
    """The step whose kept documents say how much `step` has to do, where a run uses these filters; None: as much as before."""
    if step in UNCHANGED_WORK or step == DOCUMENTS:
        return None
    verdict = filter_order.verdict_steps(filters, steps.stage_of(step))[-1]
    listed_step = COUNTED_AT.get(step)
    if listed_step == VERDICTS_BEFORE or (listed_step is None and VERDICTS_BEFORE in steps.STEPS[step].needs):
        return verdict
    return listed_step or steps.STEPS[step].needs[0]
