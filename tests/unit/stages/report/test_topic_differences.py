"""Differences between topics: noise is not found, what is there is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from crawl2llm.stages.report.topic_differences import PARTS_MIN, Difference, topic_difference

TOPICS, PARTS = 8, 32


Counts = npt.NDArray[np.int64]  # [topics, parts]


def crawl(seed: int, lift: float = 0.0) -> tuple[Counts, Counts]:
    """Hosts of 1 to 20 pages, each of two topics at most; a host loses all of its pages or none, a fifth of them; `lift` more of topic
    0.
    """
    random = np.random.default_rng(seed)
    documents, dropped = np.zeros((TOPICS, PARTS), np.int64), np.zeros((TOPICS, PARTS), np.int64)
    two = random.integers(0, TOPICS, (400, 2))
    gone = random.random(400) < 0.2 + lift * (two == 0).any(axis=1)
    hosts = np.repeat(np.arange(400), random.integers(1, 21, 400))
    topics, parts = two[hosts, random.integers(0, 2, len(hosts))], random.integers(0, PARTS, 400)[hosts]
    np.add.at(documents, (topics, parts), 1)
    np.add.at(dropped, (topics, parts), gone[hosts])
    return documents, dropped


def sure(found: list[Difference | None]) -> list[bool]:
    return [one is not None and abs(one.excess_share) > one.half_width(len(found)) for one in found]


def test_noise_is_no_finding() -> None:
    """With pages that share their host's fate: in 5 % of runs at most one of the comparisons may find something."""
    wrong = [any(sure([topic_difference(*crawl(seed), topic) for topic in range(TOPICS)])) for seed in range(200)]
    assert sum(wrong) <= 16, "5 % of 200, and what chance adds to it (99 %)"


def test_what_is_there_is_found() -> None:
    found = [sure([topic_difference(*crawl(seed, 0.5), topic) for topic in range(TOPICS)]) for seed in range(20)]
    assert sum(one[0] for one in found) >= 18


def test_the_spread_is_no_less_than_that_of_leaving_each_part_out() -> None:
    larger = 0
    for seed in range(20):
        documents, dropped = crawl(seed, 0.3)

        def difference(left: list[int], documents: Counts = documents, dropped: Counts = dropped) -> float:
            own = dropped[2, left].sum() / documents[2, left].sum()
            rest = np.delete(dropped, 2, 0)[:, left].sum() / np.delete(documents, 2, 0)[:, left].sum()
            return float(own - rest)

        each = [difference([part for part in range(PARTS) if part != out]) for out in range(PARTS)]
        least = ((PARTS - 1) / PARTS * sum((one - np.mean(each)) ** 2 for one in each)) ** 0.5
        found = topic_difference(documents, dropped, 2)
        assert found is not None and found.stderr >= least * (1 - 1e-9)
        assert found.excess_share == pytest.approx(difference(list(range(PARTS))))
        larger += found.stderr > least * (1 + 1e-9)
    assert 0 < larger < 20, "either may be the larger"


def test_few_documents_none_of_which_is_dropped_are_no_finding() -> None:
    """All parts say the same, 0, so the jackknife alone would be sure."""
    documents, dropped = crawl(0)
    documents[3], dropped[3] = 0, 0
    documents[3, :PARTS_MIN] = 1
    found = topic_difference(documents, dropped, 3)
    assert found is not None and found.share == 0 and found.other > 0.1 and abs(found.excess_share) < found.half_width()


def test_one_host_says_nothing() -> None:
    documents, dropped = crawl(0)
    documents[3], dropped[3] = 0, 0
    documents[3, 5] = dropped[3, 5] = 1000
    assert topic_difference(documents, dropped, 3) is None
    assert topic_difference(documents, np.zeros_like(dropped), 2) is None, "nothing was dropped"
    assert topic_difference(documents[2:3], dropped[2:3], 0) is None, "there are no others"
