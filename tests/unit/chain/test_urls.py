"""Names of URLs: short, unique, and as they were for all that were unique before."""

from __future__ import annotations

import hashlib

import pytest

from crawl2llm.chain.urls import unique_names


def test_names_are_as_short_as_is_unique() -> None:
    assert unique_names([]) == {}
    assert list(unique_names(["https://a.org/x/1.gz", "s3://b/x/2.gz"]).values()) == ["1.gz", "2.gz"]
    two = ["https://a.org/x/1.gz", "https://b.org/y/1.gz", "s3://b/2.gz"]
    assert list(unique_names(two).values()) == ["x/1.gz", "y/1.gz", "b/2.gz"]


def test_another_host_or_query_is_another_name() -> None:
    hosts = ["https://a.org/data/x.gz", "https://b.org/data/x.gz", "https://a.org/data/y.gz"]
    assert list(unique_names(hosts).values()) == ["a.org/data/x.gz", "b.org/data/x.gz", "data/y.gz"]
    queries = ["https://a.org/get/x.gz?id=1", "https://a.org/get/x.gz?id=2", "https://b.org/get/x.gz"]
    marks = [hashlib.sha256(url.encode()).hexdigest()[:12] for url in queries]
    assert list(unique_names(queries).values()) == [
        f"a.org/{marks[0]}/get/x.gz",
        f"a.org/{marks[1]}/get/x.gz",
        "b.org/get/x.gz",
    ]
    for pair in (
        ["https://a.org", "https://b.org"],
        ["https://a.org/x", "http://a.org/x"],
        ["s3://b/x", "hf://b/x"],
        ["https://a.org/x#1", "https://a.org/x#2"],
    ):
        assert len(set(unique_names(pair).values())) == 2


def test_names_that_stay_the_same_are_refused() -> None:
    queries = ["https://a.org/get?id=1", "https://a.org/get?id=2"]
    with pytest.raises(ValueError, match=r"id=1 and s3://a\.org/\w{12}/get would both be called a\.org/"):
        unique_names([*queries, f"s3://{unique_names(queries)[queries[0]]}"])
