"""A model of topics: which topic a document is nearest to, from its terms alone, by sums in a fixed order.

Stored without pickle: `topics.json` has terms and topics, `weights.npz` the numbers. The nearest topic has the highest cosine, compared in
steps of 1e-6, the first of equals: so the last digits of a sum do not decide.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from crawl2llm.core.manifest import Manifest, canonical_json, write_atomically

FACTS, WEIGHTS = "topics.json", "weights.npz"
DIGITS = 6  # of a cosine


def unit_rows(rows: Any) -> Any:
    """Rows of length 1, of a dense or a sparse matrix; a row of zeros stays as it is."""
    if issparse(rows):
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        return csr_matrix(rows.multiply((1 / np.where(lengths > 0, lengths, 1.0))[:, None]))
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1.0)


@dataclass
class Model:
    """idf: by term, in the order of the columns. components: [terms, dimensions]. centres: [topics, dimensions], of length 1. names: of
    the topics.
    """

    idf: dict[str, float]
    components: npt.NDArray[np.float64]
    centres: npt.NDArray[np.float64]
    names: list[str]

    def __post_init__(self) -> None:
        # As they are stored, so that the sample's topics are those that the scores will say.
        self.components = self.components.astype(np.float32).astype(np.float64)
        self.centres = self.centres.astype(np.float32).astype(np.float64)
        self.numbers = {term: number for number, term in enumerate(self.idf)}
        self.weights = np.array(list(self.idf.values()))
        # One product gives a document's vector and its inner product with every topic. SciPy adds up each in the order of the terms, which
        # a product of dense matrices would not.
        sums = [(self.components * centre).sum(axis=1) for centre in self.centres]
        self.both = np.hstack([self.components, np.stack(sums, axis=1)])

    def tfidf_matrix(self, documents: Sequence[Iterable[str]]) -> csr_matrix:
        """TF-IDF of documents, given as terms: [documents, terms], each row of length 1."""
        starts, columns, values = [0], list[int](), list[float]()
        for terms in documents:
            counted = Counter(number for term in terms if (number := self.numbers.get(term)) is not None)
            for number in sorted(counted):
                columns.append(number)
                values.append((1 + np.log(counted[number])) * self.weights[number])
            starts.append(len(columns))
        return unit_rows(csr_matrix((values, columns, starts), (len(starts) - 1, len(self.idf))))

    def nearest_topics(self, documents: csr_matrix) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """(the number of the nearest topic, the distance 1 - cosine, from 0 to 2) of every row; without any term of the model -1 and 1."""
        both = documents @ self.both
        vectors, inner = both[:, : self.components.shape[1]], both[:, self.components.shape[1] :]
        lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        cosines = np.round(inner / np.where(lengths > 0, lengths, 1.0), DIGITS)
        nowhere = lengths[:, 0] == 0
        topics = np.where(nowhere, -1, cosines.argmax(axis=1))
        return topics, np.where(nowhere, 1.0, 1 - cosines.max(axis=1))


@dataclass
class Models:
    """settings: those of topics.train that a score needs: `by`, `characters`, `seed`. by_language: models by their language, or ALL."""

    settings: dict[str, Any]
    by_language: dict[str, Model]


def save_models(models: Models, folder: Path) -> list[Path]:
    """Write models; the files."""
    by_name = sorted(models.by_language.items())
    model_facts = [{"name": name, "terms": list(model.idf), "topics": model.names} for name, model in by_name]
    write_atomically(folder / FACTS, canonical_json({"settings": models.settings, "models": model_facts}) + "\n")
    arrays: dict[str, Any] = {}
    for number, (_, model) in enumerate(by_name):
        arrays[f"{number}.idf"] = model.weights
        arrays[f"{number}.components"] = model.components.astype(np.float32)
        arrays[f"{number}.centres"] = model.centres.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / WEIGHTS, allow_pickle=False, **arrays)
    return [folder / FACTS, folder / WEIGHTS]


def load_models(manifest: Path) -> Models:
    """What topics.train wrote; ManifestError for files that are not what it wrote."""
    stored = Manifest.read(manifest).verify_files("")
    facts, models = json.loads(stored.file(FACTS).read_text(encoding="utf-8")), {}
    with np.load(stored.file(WEIGHTS), allow_pickle=False) as arrays:
        for number, model_facts in enumerate(facts["models"]):
            idf, components, centres = (arrays[f"{number}.{part}"] for part in ("idf", "components", "centres"))
            weights = dict(zip(model_facts["terms"], idf.tolist(), strict=True))
            models[model_facts["name"]] = Model(weights, components, centres, model_facts["topics"])
    return Models(facts["settings"], models)
