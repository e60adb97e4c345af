"""How much a generated text has in common with its reference (ROUGE, BLEU, chrF), and how much with itself (distinct-n, repetition)."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from crawl2llm.formats.public_tasks.measures import DIGITS, RESAMPLES, standard_error
from crawl2llm.stages.evaluate.sentence_words import WORD

ROUGE = ("rouge1", "rouge2", "rougeL")
# Words of a stretch that counts as repeated: seq-rep-4 (Welleck et al. 2020, arXiv:1908.04319, section 6).
REPEATED_WORDS = 4


def folded_words(text: str) -> list[str]:
    """The words of a text in any language, case folded."""
    return [match.group().casefold() for match in WORD.finditer(text)]


class FoldedTokenizer:
    """The tokenizer that rouge_score is given: its own knows the letters a to z alone."""

    def tokenize(self, text: str) -> list[str]:
        return folded_words(text)


@cache
def overlap_scorers() -> tuple[Any, Any, Any]:
    """rouge_score's scorer, and sacrebleu's BLEU and chrF with their defaults (13a; six characters, no words)."""
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics import BLEU, CHRF

    return RougeScorer(list(ROUGE), use_stemmer=False, tokenizer=FoldedTokenizer()), BLEU(effective_order=True), CHRF()


def compare_with_reference(text: str, reference: str) -> dict[str, float]:
    """One text beside its reference: F1 of rouge1, rouge2, rougeL (0 to 1; Lin 2004), `bleu` and `chrf` of the sentence (0 to 100)."""
    rouge, bleu, chrf = overlap_scorers()
    measures = {name: float(rouge_score.fmeasure) for name, rouge_score in rouge.score(reference, text).items()}
    measures["bleu"] = float(bleu.sentence_score(text, [reference]).score)
    measures["chrf"] = float(chrf.sentence_score(text, [reference]).score)
    return {name: round(value, DIGITS) for name, value in measures.items()}


def corpus_scores(
    texts: Sequence[str], references: Sequence[str], documents: Sequence[str], seed: int
) -> dict[str, float | None]:
    """`bleu` and `chrf` of all texts as one corpus (Papineni et al. 2002; Popović 2015), with `_stderr` by bootstrap over documents.

    A corpus's score is that of the sums of its texts' statistics, so a resample needs no text. Errors are None with one document.
    """
    from sacrebleu.metrics import BLEU

    measures: dict[str, float | None] = {}
    names, place = np.unique(np.array(documents), return_inverse=True)
    for name, metric in (("bleu", BLEU()), ("chrf", overlap_scorers()[2])):
        by_text = np.array(metric._extract_corpus_statistics(list(texts), [list(references)]), dtype=float)
        sums = np.zeros((len(names), by_text.shape[1]))
        np.add.at(sums, place, by_text)

        def score_statistics(stats: Any, metric: Any = metric) -> float:
            return float(metric._compute_score_from_stats([int(value) for value in stats]).score)

        measures[name] = score_statistics(sums.sum(axis=0))
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        scores = [
            score_statistics(sums[generator.integers(len(names), size=len(names))].sum(axis=0))
            for _ in range(RESAMPLES)
        ]
        measures[f"{name}_stderr"] = float(np.std(scores, ddof=1)) if len(names) > 1 else None
    return measures


def word_ngrams(text_words: Sequence[str], number: int) -> Counter[tuple[str, ...]]:
    """Every stretch of `number` words, and how often it is there."""
    return Counter(tuple(text_words[at : at + number]) for at in range(len(text_words) - number + 1))


def distinct_share(texts: Sequence[str], number: int) -> float | None:
    """Different stretches of `number` words over all stretches, in all texts (Li et al. 2016, arXiv:1510.03055); None without any."""
    counts = Counter[tuple[str, ...]]()
    for text in texts:
        counts.update(word_ngrams(folded_words(text), number))
    return len(counts) / counts.total() if counts else None


def repetition_share(texts: Sequence[str]) -> float | None:
    """The share of stretches of REPEATED_WORDS words that were in their text before, mean over the texts that have one; None without."""
    shares = [
        1 - len(counts) / counts.total()
        for text in texts
        if (counts := word_ngrams(folded_words(text), REPEATED_WORDS))
    ]
    return sum(shares) / len(shares) if shares else None


def text_measures(texts: Sequence[str]) -> dict[str, float | None]:
    """What texts are like by themselves: mean `words`, `distinct_1`, `distinct_2`, `repetition`, and the share of `empty` ones."""
    return {
        "words": sum(len(folded_words(text)) for text in texts) / len(texts),
        "distinct_1": distinct_share(texts, 1),
        "distinct_2": distinct_share(texts, 2),
        "repetition": repetition_share(texts),
        "empty": sum(not text.strip() for text in texts) / len(texts),
    }


def answer_measures(rows: Sequence[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The numbers of answers beside their references. rows: with text, reference, document, and what `compare_with_reference` found of
    each.
    """
    texts, references, documents = ([row[key] for row in rows] for key in ("text", "reference", "document"))
    measures: dict[str, Any] = {"items": len(rows), "documents": len(set(documents))}
    for name in ROUGE:
        measures[name] = sum(row[name] for row in rows) / len(rows)
        measures[f"{name}_stderr"] = standard_error([row[name] for row in rows], documents, seed, name)
    reference_measures = {
        f"reference_{name}": value for name, value in text_measures(references).items() if name != "empty"
    }
    measures |= {**corpus_scores(texts, references, documents, seed), **text_measures(texts), **reference_measures}
    return {key: round(value, DIGITS) if isinstance(value, float) else value for key, value in measures.items()}
