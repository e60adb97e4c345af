"""Topics that are there are found, the same every time, and a stored model says what the fitted one does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits

from crawl2llm.core.manifest import Manifest
from crawl2llm.core.topic_names import ALL
from crawl2llm.stages.topics import model as stored
from crawl2llm.stages.topics.fit import FittedTopics, Sample, fit_topics, map_places, tfidf_matrix, vocabulary_idf
from crawl2llm.stages.topics.model import Models
from crawl2llm.stages.topics.settings import TrainSettings
from crawl2llm.stages.topics.terms import terms
from tests.unit.stages.topics.conftest import WORDS, chinese, english

SETTINGS = TrainSettings(clusters=3, terms=1000, dimensions=10)


def sample(rows: list[dict[str, Any]]) -> Sample:
    found = Sample()
    for row in rows:
        found.add(row["id"], terms(row["text"]))
    return found


def fitted(rows: list[dict[str, Any]], **settings: Any) -> FittedTopics:
    made = fit_topics(sample(rows), SETTINGS.model_copy(update=settings), "topic")
    assert made is not None
    return made


def kind(name: str) -> str:
    return name.rstrip("0123456789")


def test_planted_topics_are_found_and_named() -> None:
    rows = english()
    made = fitted(rows)
    by: dict[int, set[str]] = {}
    for row, topic in zip(rows, made.topics.tolist(), strict=True):
        by.setdefault(topic, set()).add(kind(row["id"]))
    assert sorted(by) == [0, 1, 2] and sorted(one for kinds in by.values() for one in kinds) == sorted(WORDS)
    for topic, kinds in by.items():
        assert set(made.topic_terms[topic]) <= set(WORDS[kinds.pop()])
    assert made.model.names == ["topic-01", "topic-02", "topic-03"]


def test_scripts_without_spaces() -> None:
    rows = chinese()
    made = fitted(rows, clusters=2)
    assert {(kind(row["id"]), topic) for row, topic in zip(rows, made.topics.tolist(), strict=True)} in (
        {("food", 0), ("rail", 1)}, {("food", 1), ("rail", 0)},
    )  # fmt: skip


def test_the_largest_topic_is_the_first() -> None:
    rows = [row for row in english() if kind(row["id"]) != "sea" or int(row["id"][3:]) < 20]
    sizes = np.bincount(fitted(rows).topics)
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True) and sizes[-1] == 20


def test_weights_are_those_of_scikit_learn() -> None:
    rows = english()[::2]
    found = sample(rows)
    idf = vocabulary_idf(found, 1000)
    theirs = TfidfVectorizer(analyzer=lambda row: list(terms(row)), sublinear_tf=True, vocabulary=list(idf))
    wanted = theirs.fit_transform([row["text"] for row in rows]).toarray()
    # Of words that are in most documents, which are no term of ours, the length of a document knows nothing.
    assert np.allclose(tfidf_matrix(found, idf).toarray(), wanted)


def test_terms_of_half_of_the_sample_and_of_few_are_left_out() -> None:
    rows = english()
    rows[0]["text"] += " once"
    known = vocabulary_idf(sample(rows), 1000)
    assert set(known) == {word for words in WORDS.values() for word in words}
    assert len(vocabulary_idf(sample(rows), 7)) == 7


def test_a_stored_model_says_the_same(tmp_path: Path) -> None:
    rows = english()
    made = fitted(rows)
    files = stored.save_models(Models({"by": "all"}, {ALL: made.model}), tmp_path)
    Manifest("topics.train", "test").write(tmp_path / "manifest.json", files)
    model = stored.load_models(tmp_path / "manifest.json").by_language[ALL]
    topics, distances = model.nearest_topics(model.tfidf_matrix([terms(row["text"]) for row in rows]))
    assert topics.tolist() == made.topics.tolist() and distances.min() >= 0 and distances.max() < 1
    assert b"pickle" not in b"".join(path.read_bytes() for path in files)
    with np.load(io.BytesIO(files[1].read_bytes()), allow_pickle=False) as arrays:
        assert sorted(arrays) == ["0.centres", "0.components", "0.idf"]


def test_a_document_without_a_known_term_has_no_topic() -> None:
    model = fitted(english()).model
    topics, distances = model.nearest_topics(model.tfidf_matrix([[], ["unheard"], ["ship"]]))
    assert topics.tolist()[:2] == [-1, -1] and topics[2] >= 0 and distances.tolist()[:2] == [1, 1]


def test_the_topic_of_a_document_does_not_depend_on_those_beside_it() -> None:
    model, rows = fitted(english()).model, english()
    each = [model.nearest_topics(model.tfidf_matrix([terms(row["text"])])) for row in rows]
    topics, distances = model.nearest_topics(model.tfidf_matrix([terms(row["text"]) for row in rows]))
    assert [int(topic[0]) for topic, _ in each] == topics.tolist()
    assert [float(distance[0]) for _, distance in each] == distances.tolist()


@pytest.mark.parametrize("rows", [[], english()[:1], english()[:3]], ids=len)
def test_too_few_documents_have_no_topics(rows: list[dict[str, Any]]) -> None:
    assert fit_topics(sample(rows), SETTINGS, "topic") is None


def test_other_threads_give_the_same_bytes(tmp_path: Path) -> None:
    """Of BLAS and OpenMP, which another machine, or a task beside, may have more of."""
    rows = [
        {**row, "id": f"{row['id']}-{again}", "text": f"{row['text']} w{again % 40}"}
        for again in range(25)
        for row in english()
    ]
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            made = fitted(rows, clusters=9, dimensions=30)
            files = stored.save_models(Models({}, {ALL: made.model}), tmp_path / str(threads))
            found.append([*(path.read_bytes() for path in files), map_places(made.vectors[:60], 0).tobytes()])
    assert found[0] == found[1]


@pytest.mark.parametrize("documents", [0, 1, 3, 12])
def test_a_map_lies_in_a_square(documents: int) -> None:
    places = map_places(np.eye(20)[:documents], 0)
    assert places.shape == (documents, 2) and (places >= 0).all() and (places <= 1).all()
