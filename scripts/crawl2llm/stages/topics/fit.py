"""Topics of a sample: TF-IDF, latent semantic analysis and k-means, by scikit-learn on one thread.

Terms are weighted as (1 + ln tf) x idf with idf = ln((1 + n) / (1 + df)) + 1 (scikit-learn's TfidfTransformer, sublinear_tf), documents
have length 1. Latent semantic analysis is a truncated SVD of these (Deerwester et al. 1990; Halko et al. 2011, arXiv:0909.4061), after
which documents have length 1 again, so that k-means compares directions. A topic's vector is the mean of its documents, with length 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from crawl2llm.stages.topics.model import Model, unit_rows
from crawl2llm.stages.topics.settings import TrainSettings

DOCUMENTS_MIN = 5  # of the sample that a term is in, to be one of the model's
SHARE_MAX = 0.5  # most of the sample that a term is in: words that half of all documents have tell no topics apart
DOCUMENTS_EACH = 20  # documents of the sample for a topic at least: of fewer, chance decides
STARTS = 4  # of k-means, of which the best is taken
NAMED_BY = 8  # terms that a topic is named by
PERPLEXITY = 30.0  # of the map: t-SNE's usual number of neighbours (van der Maaten and Hinton 2008)


@dataclass
class Sample:
    """Documents of a sample as numbers of terms: 8 bytes for each different term of a document, and about 100 for each term of the
    sample.
    """

    ids: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    terms: list[npt.NDArray[np.int32]] = field(default_factory=list)  # of each document, those that differ
    counts: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def add(self, name: str, terms: Iterable[str]) -> None:
        """Add a document by its id and terms."""
        counted = Counter(terms)
        self.ids.append(name)
        self.terms.append(
            np.array([self.numbers.setdefault(term, len(self.numbers)) for term in counted], dtype=np.int32)
        )
        self.counts.append(np.array(list(counted.values()), dtype=np.int32))


@dataclass
class FittedTopics:
    """A model, and of the sample it was fitted on: the topic of each document (-1: none), its vector, and of each topic its documents
    and terms.
    """

    model: Model
    topics: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float64]  # of the documents
    topic_terms: list[list[str]]


def vocabulary_idf(sample: Sample, most: int) -> dict[str, float]:
    """The terms of the model and their idf: those in DOCUMENTS_MIN documents or more and SHARE_MAX of them at most, the `most` most
    frequent.
    """
    documents = len(sample.ids)
    frequency = np.zeros(len(sample.numbers), np.int64)
    for numbers in sample.terms:
        frequency[numbers] += 1
    kept = [
        (int(frequency[number]), term)
        for term, number in sample.numbers.items()
        if DOCUMENTS_MIN <= frequency[number] <= SHARE_MAX * documents
    ]
    kept.sort(key=lambda count_and_term: (-count_and_term[0], count_and_term[1]))
    return {
        term: float(np.log((1 + documents) / (1 + times)) + 1)
        for times, term in sorted(kept[:most], key=lambda count_and_term: count_and_term[1])
    }


def tfidf_matrix(sample: Sample, idf: dict[str, float]) -> csr_matrix:
    """TF-IDF of the sample [documents, terms], each row of length 1; a document without any of the terms is a row of zeros."""
    place = np.full(len(sample.numbers), -1, np.int64)
    for number, term in enumerate(idf):
        place[sample.numbers[term]] = number
    weights = np.array(list(idf.values()))
    starts, columns, values = [0], [], []
    for numbers, counts in zip(sample.terms, sample.counts, strict=True):
        at = place[numbers]
        in_model = at >= 0
        columns.append(at[in_model])
        values.append((1 + np.log(counts[in_model])) * weights[at[in_model]])
        starts.append(starts[-1] + int(in_model.sum()))
    weighted = csr_matrix(
        (np.concatenate(values), np.concatenate(columns), np.array(starts)), (len(sample.ids), len(idf))
    )
    weighted.sort_indices()
    return unit_rows(weighted)


def fit_topics(sample: Sample, settings: TrainSettings, topic: str) -> FittedTopics | None:
    """Topics of a sample, the largest first; None if it has too few terms for any. topic: what their names begin with."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits

    idf = vocabulary_idf(sample, settings.terms)
    dimensions = min(settings.dimensions, len(idf) - 1, len(sample.ids) - 1)
    if dimensions < 2:
        return None
    weights = tfidf_matrix(sample, idf)
    with threadpool_limits(1):  # sums of several threads would be in another order each time
        reduce = TruncatedSVD(dimensions, random_state=settings.seed).fit(weights)
        vectors = unit_rows(weights @ reduce.components_.T)
        topic_count = max(2, min(settings.clusters, len(sample.ids) // DOCUMENTS_EACH))
        centres = KMeans(topic_count, n_init=STARTS, random_state=settings.seed).fit(vectors).cluster_centers_
    model = Model(idf, reduce.components_.T, unit_rows(centres), [""] * topic_count)
    topics, _ = model.nearest_topics(weights)
    order = np.argsort(-np.bincount(topics[topics >= 0], minlength=topic_count), kind="stable")
    model = Model(
        idf, reduce.components_.T, unit_rows(centres)[order], [f"{topic}-{n:02d}" for n in range(1, topic_count + 1)]
    )
    topics, _ = model.nearest_topics(weights)
    return FittedTopics(model, topics, vectors, topic_terms(weights, topics, list(idf), topic_count))


def topic_terms(weights: csr_matrix, topics: npt.NDArray[np.int64], terms: list[str], number: int) -> list[list[str]]:
    """Of each topic the NAMED_BY terms whose mean weight in its documents is most above the mean in all."""
    overall, out = np.asarray(weights.mean(axis=0)).ravel(), []
    for topic in range(number):
        members = np.flatnonzero(topics == topic)
        above = np.asarray(weights[members].mean(axis=0)).ravel() - overall if len(members) else np.zeros(len(terms))
        first = sorted(range(len(terms)), key=lambda at: (-round(float(above[at]), 6), terms[at]))[:NAMED_BY]
        out.append([terms[at] for at in first if above[at] > 0])
    return out


def map_places(vectors: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    """A map of documents: [documents, 2] in [0, 1], by t-SNE; the middle for one document. Near each other are documents with the same
    words.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(vectors) < 4:
        return np.full((len(vectors), 2), 0.5)
    near = min(PERPLEXITY, (len(vectors) - 1) / 3)
    with threadpool_limits(1):
        places = TSNE(2, perplexity=near, init="pca", max_iter=500, random_state=seed, n_jobs=1).fit_transform(vectors)
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - low) / np.where(high > low, high - low, 1.0), float)
