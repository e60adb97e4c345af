"""What `auto` stands for: every corpus gets a model that can be built and trained, and what is set stays as it is."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core import root
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto, schedule
from crawl2llm.training.pretraining_settings import ResolvedSettings
from tests.unit.stages.pretrain.conftest import build
from tests.unit.training.typed import train_settings

TOKENS = st.integers(300, 10**11)
few = hypothesis.settings(max_examples=25, deadline=None)


def cost(made: ResolvedSettings, vocabulary: int) -> float:
    """Floating-point operations of the whole run."""
    assert made.steps is not None
    return auto.training_flops_per_token(made.model, vocabulary) * made.steps * made.global_batch_tokens


def consistent(made: ResolvedSettings, tokens: int) -> None:
    """Assert that no `auto` is left, and that transformers and the plan take what is there."""
    from crawl2llm.training.model import build_config

    left = {key for key, value in [*made, *made.model] if value == "auto"}
    assert left == {"reduce_dtype", "device"}  # an engine's own, and placement, which no corpus decides
    shape = build_config(made.model, 1024, 0)
    assert shape.hidden_size % (2 * shape.num_attention_heads) == 0
    schedule.make_plan(made, tokens)


@few
@given(TOKENS)
def test_every_corpus_gets_a_model_that_can_be_trained(tokens: int) -> None:
    made = auto.resolve(train_settings(), tokens, 1024)
    consistent(made, tokens)
    planned = schedule.make_plan(made, tokens)
    assert planned.sequences % auto.SEQUENCES == 0
    # A batch is whole, and an epoch holds whole windows: hence a little above 4 for the smallest.
    assert planned.epochs <= auto.PASSES + 4 * (planned.sequences + 1) / planned.windows
    if tokens < auto.GPU_TOKENS:
        assert (
            cost(made, 1024) <= auto.COMPUTE + auto.training_flops_per_token(made.model, 1024) * planned.tokens_per_step
        )


@few
@given(TOKENS, TOKENS)
def test_more_tokens_never_get_a_smaller_model(one: int, other: int) -> None:
    sizes = [
        auto.parameter_totals(auto.resolve(train_settings(), tokens, 4096).model, 4096)
        for tokens in sorted((one, other))
    ]
    assert sizes[0] <= sizes[1]


MODEL = st.fixed_dictionaries(
    {},
    optional={
        "hidden_size": st.sampled_from([32, 48, 66, 128, 200, 576, 768]),
        "layers": st.integers(1, 40),
        "kv_heads": st.sampled_from([None, 1]),
        "intermediate_size": st.sampled_from([None, 100]),
        "context": st.sampled_from([8, 100, 128, 256]),
    },
)
TRAIN = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.integers(1, 1000),
        "learning_rate": st.just(0.01),
        "validate_every": st.just(0),
        "tie_embeddings": st.booleans(),
    },
)


@few
@given(MODEL, TRAIN, TOKENS)
def test_keys_that_are_set_stay_and_the_others_go_with_them(
    model: dict[str, Any], train: dict[str, Any], tokens: int
) -> None:
    tied = {"tie_embeddings": train.pop("tie_embeddings")} if "tie_embeddings" in train else {}
    wanted = train_settings(model=model | tied, **train)
    made = auto.resolve(wanted, tokens, 1024)
    consistent(made, tokens)
    assert dict(made.model) == dict(made.model) | model | tied
    assert dict(made) == dict(made) | train
    found = auto.resolved_values(wanted, made)
    assert not set(found) & {*train, *(f"model.{key}" for key in model)}
    assert ("steps" in found) == ("steps" not in train)


@few
@given(st.integers(1, 40), st.sampled_from([None, 1, 2, 3]), TOKENS)
def test_heads_that_are_set_get_a_hidden_size(heads: int, groups: int | None, tokens: int) -> None:
    model = {"heads": heads} | ({"kv_heads": heads // groups} if groups and heads % groups == 0 else {})
    made = auto.resolve(train_settings(model=model), tokens, 1024)
    consistent(made, tokens)
    assert made.model.heads == heads


@few
@given(st.sampled_from([1, 2, 3, 5, 8]), TOKENS)
def test_key_and_value_heads_that_are_set_get_heads(kv_heads: int, tokens: int) -> None:
    consistent(auto.resolve(train_settings(model={"kv_heads": kv_heads}), tokens, 1024), tokens)


@few
@given(st.sampled_from([512, 1000, 4096, 6144]), TOKENS)
def test_a_batch_that_is_set_gets_a_context_that_divides_it(batch: int, tokens: int) -> None:
    made = auto.resolve(train_settings(global_batch_tokens=batch), tokens, 1024)
    consistent(made, tokens)
    assert made.global_batch_tokens == batch


def test_a_hidden_size_that_no_heads_divide_is_refused_with_what_to_set() -> None:
    with pytest.raises(InputError, match=r"heads is auto.*hidden_size = 33.*multiple of 2, or set heads"):
        auto.resolve(train_settings(model={"hidden_size": 33}), 10**6, 1024)
    with pytest.raises(InputError, match=r"hidden_size = 64.*kv_heads = 5; make hidden_size a multiple of 10"):
        auto.resolve(train_settings(model={"hidden_size": 64, "kv_heads": 5}), 10**6, 1024)


def test_who_sets_the_size_is_not_held_to_the_bound_for_two_cores() -> None:
    tokens = 20_000_000
    shape = {"hidden_size": 576, "intermediate_size": 1536, "layers": 30, "heads": 9, "kv_heads": 3}
    made = auto.resolve(train_settings(model=shape), tokens, 32768)
    assert cost(made, 32768) > 100 * auto.COMPUTE
    assert schedule.make_plan(made, tokens).epochs == pytest.approx(auto.PASSES, rel=0.01)
    assert made.learning_rate == 6e-4  # of a model of this size, not of one that this corpus would get
    assert schedule.make_plan(made, tokens).steps >= auto.STEPS


def test_a_budget_that_is_set_stays() -> None:
    for key, value in (("epochs", 2.0), ("tokens", 10**6), ("steps", 7)):
        made = auto.resolve(train_settings(**{key: value}), 10**6, 1024)
        assert getattr(made, key) == value
        assert [other for other in ("steps", "tokens", "epochs") if getattr(made, other) is not None] == [key]


def test_nothing_depends_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    before = auto.resolve(train_settings(), 10**7, 4096)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert auto.resolve(train_settings(), 10**7, 4096) == before


def test_the_tables_shapes_have_the_parameters_that_transformers_counts() -> None:
    from crawl2llm.training.model import build_config, parameter_counts

    for found in auto.TABLE[:4]:
        made = auto.resolve(train_settings(), found.tokens or 1000, 1024)
        real = parameter_counts(build(build_config(made.model, 1024, 0), 0))
        assert auto.parameter_totals(made.model, 1024) == (real["total"], real["non_embedding"])


def test_the_docs_show_the_table() -> None:
    page = (root.ROOT / "docs/stages/pretrain.md").read_text(encoding="utf-8")
    for found in auto.TABLE:
        numbers = f"{found.context:,} | {found.batch:,} | {found.learning_rate:.0e}".replace("e-0", "e-")
        assert f"| {found.hidden_size:,} × {found.layers}, {found.heads} " in page
        assert numbers in page
