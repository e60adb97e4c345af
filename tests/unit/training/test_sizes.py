"""`pretrain.train.model.size`: a shape with about so many parameters, whatever is set beside it."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config, fingerprint
from crawl2llm.core import errors
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto, checks, schedule, sizes
from crawl2llm.training.parameters import count_model_parameters
from crawl2llm.training.pretraining_settings import ResolvedSettings
from tests.unit.training.typed import train_settings

few = hypothesis.settings(max_examples=40, deadline=None)


def made(size: str | int, vocabulary: int = 32_768, tokens: int = 10**9, **model: Any) -> ResolvedSettings:
    return auto.resolve(train_settings(model={"size": size, **model}), tokens, vocabulary)


@few
@given(st.integers(3, 70_000), st.sampled_from([1024, 4096, 8192]), st.booleans())
def test_every_size_gets_a_model_of_about_that_size_that_can_be_built(
    millions: int, vocabulary: int, tied: bool
) -> None:
    from crawl2llm.training.model import build_config

    found = made(f"{millions}M", vocabulary, tie_embeddings=tied)
    assert count_model_parameters(found.model, vocabulary).total == pytest.approx(millions * 1e6, rel=0.12)
    build_config(found.model, vocabulary, 0)
    assert found.model.hidden_size % (2 * found.model.heads) == 0
    assert 8 <= found.model.hidden_size / found.model.layers <= 400
    schedule.make_plan(found, 10**9)


@few
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "hidden_size": st.sampled_from([512, 768, 960]),
            "layers": st.integers(8, 20),
            "heads": st.sampled_from([4, 8]),
            "kv_heads": st.sampled_from([1, 2, 4]),
            "intermediate_size": st.sampled_from([1024, 2048]),
        },
    )
)
def test_what_is_set_stays_or_is_refused(model: dict[str, Any]) -> None:
    try:
        found = made("125M", 16_384, **model)
    except InputError as error:
        assert "size is 125M" in str(error) and all(f"{key} {value}" in str(error) for key, value in model.items())
        return
    assert dict(found.model) == dict(found.model) | model
    assert count_model_parameters(found.model, 16_384).total == pytest.approx(125e6, rel=0.3)
    checks.check_heads(found.model)


def test_the_published_shapes_are_near() -> None:
    shape = made("125M").model
    assert (shape.hidden_size, shape.layers, shape.kv_heads) == (768, 14, 12)  # GPT-3 125M: 768 × 12, 12 heads
    shape = made("1.1B").model
    assert (shape.hidden_size, shape.heads) == (2048, 32)  # TinyLlama: 2048 × 22, 32 heads
    shape = made("7B", 32_000, tie_embeddings=False).model  # Llama 7B: 4096 × 32, heads of 128
    assert shape.hidden_size in (4096, 4608) and 26 <= shape.layers <= 40
    assert shape.hidden_size == 128 * shape.heads and shape.heads == 4 * shape.kv_heads


def test_a_size_of_other_words_is_the_same_number() -> None:
    assert sizes.parse_size("1.5B") == sizes.parse_size(1_500_000_000) == sizes.parse_size("1500M")
    for wrong in ("125m", "small", "-1M"):
        with pytest.raises(errors.ConfigError, match=r"pretrain\.train\.model\.size is "):
            config.validate({"pretrain": {"train": {"model": {"size": wrong}}}})


def test_a_size_below_the_embeddings_is_refused_with_what_to_change() -> None:
    with pytest.raises(
        InputError, match=r"size is 1M, and a vocabulary of 32,768 .* the nearest has .* smaller tokenize"
    ):
        made("1M")
    with pytest.raises(InputError, match=r"size is 125M, and hidden_size 64, layers 2 and a vocabulary"):
        made("125M", hidden_size=64, layers=2)


def test_the_size_brings_the_batch_and_the_rate_of_its_own_row() -> None:
    small, large = made("30M", 8192), made("1B")
    assert small.learning_rate > large.learning_rate
    assert "model.hidden_size" in auto.resolved_values(train_settings(model={"size": "30M"}), small)


def test_a_size_of_null_is_in_no_fingerprint() -> None:
    """Results that were made before there was such a key stay what they are."""
    without, sized = (config.validate({"pretrain": {"train": {"model": {"size": size}}}}) for size in (None, "30M"))
    assert "size" not in fingerprint.tracked_settings("pretrain.train", without)["model"]
    assert fingerprint.tracked_settings("pretrain.train", sized)["model"]["size"] == "30M"
