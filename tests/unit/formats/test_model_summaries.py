"""What the summary of a step that makes a model says."""

from __future__ import annotations

from crawl2llm.formats.model_summaries import parameter_count


def test_parameters_are_a_number_or_the_total_of_several() -> None:
    assert (
        parameter_count({"parameters": 12}) == parameter_count({"parameters": {"total": 12, "non_embedding": 7}}) == 12
    )
    assert parameter_count({"parameters": None}) is parameter_count({}) is parameter_count(None) is None
