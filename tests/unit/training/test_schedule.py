"""The plan of a run, the learning rate, and the measures."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.training import measures
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.pretraining_settings import ResolvedSettings
from crawl2llm.training.schedule import accumulation_steps, fitting_micro_batch, learning_rate, make_plan
from tests.unit.training.typed import engine_settings, train_settings

DEFAULTS: dict[str, Any] = {"epochs": None, "learning_rate": 6e-4, "warmup": 0.01, "global_batch_tokens": 40}


def settings(context: int = 10, **changes: Any) -> ResolvedSettings:
    return cast(ResolvedSettings, train_settings(**{**DEFAULTS, "model": {"context": context}, **changes}))


def rates_of(**changes: Any) -> EngineSettings:
    return engine_settings(**{**DEFAULTS, **changes})


def test_budget() -> None:
    assert make_plan(settings(steps=7), 1001).steps == 7
    assert make_plan(settings(tokens=100), 1001).steps == 3  # 2.5 steps, rounded up
    assert make_plan(settings(), 1001).steps == 25  # one epoch of 100 windows in batches of 4
    assert make_plan(settings(epochs=2.5), 1001).epochs == pytest.approx(2.52)
    assert make_plan(settings(), 1000).windows == 99  # the last window has no token after it
    packed = make_plan(settings(), 1001, 130)  # an epoch of windows that are packed
    assert (packed.steps, packed.windows) == (33, 130) and packed.epochs == pytest.approx(132 / 130)


def test_refuses_two_budgets_and_too_few_tokens() -> None:
    with pytest.raises(InputError, match=r"train\.steps = 7, pretrain\.train\.epochs = 1: give one"):
        make_plan(settings(steps=7, epochs=1), 1001)
    with pytest.raises(InputError, match="hold 10 tokens, too few"):
        make_plan(settings(), 10)


def test_refuses_a_global_batch_that_does_not_divide() -> None:
    with pytest.raises(InputError, match=r"global_batch_tokens is 45.*context = 10; the nearest are 40 and 50"):
        make_plan(settings(global_batch_tokens=45), 1001)
    made = make_plan(settings(global_batch_tokens=10_000, context=100), 100_000)
    with pytest.raises(InputError, match=r"8 × 2 × 100 = 1600; the nearest are 9600 and 11200"):
        accumulation_steps(made, 8, 2)
    with pytest.raises(InputError, match=r"= 12800; the nearest are 12800$"):
        accumulation_steps(made, 16, 8)
    assert accumulation_steps(made, 10, 2) == 5


def test_the_micro_batch_gives_way_to_a_global_batch_that_is_auto() -> None:
    made = make_plan(settings(global_batch_tokens=1600, context=100), 100_000)  # 16 windows
    assert [fitting_micro_batch(made, 8, processes) for processes in (1, 2, 4, 8, 16)] == [8, 8, 4, 2, 1]
    assert [fitting_micro_batch(made, 5, processes) for processes in (1, 4)] == [4, 4]
    assert fitting_micro_batch(made, 8, 3) == 8  # refused by accumulation, by name


@hypothesis_settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 500), st.sampled_from(["cosine", "linear", "wsd", "constant"]), st.floats(0, 1), st.floats(0, 1))
def test_learning_rate_stays_in_its_range(steps: int, schedule: str, warmup: float, decay: float) -> None:
    chosen = rates_of(schedule=schedule, warmup=warmup, decay=decay)
    rates = [learning_rate(step, steps, chosen) for step in range(1, steps + 1)]
    assert all(0 < rate <= 6e-4 * (1 + 1e-9) for rate in rates)
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert all(a >= b for a, b in zip(rates[top:], rates[top + 1 :], strict=False))


def test_learning_rate_at_its_corners() -> None:
    chosen = rates_of(warmup=0.1)
    assert learning_rate(1, 100, chosen) == pytest.approx(6e-5)
    assert learning_rate(10, 100, chosen) == pytest.approx(6e-4)
    assert learning_rate(55, 100, chosen) == pytest.approx(3.3e-4)  # half-way between the peak and a tenth of it
    assert learning_rate(100, 100, chosen) == pytest.approx(6e-5)
    wsd = rates_of(warmup=0.1, schedule="wsd", decay=0.2)
    assert learning_rate(80, 100, wsd) == pytest.approx(6e-4)
    assert learning_rate(90, 100, wsd) == pytest.approx(3.3e-4)


def test_bits_per_byte() -> None:
    # A model that gives each of 256 byte tokens the same probability needs 8 bits for each byte.
    assert measures.bits_per_byte(1000 * math.log(256), 1000) == pytest.approx(8)
    # With 4 bytes a token, a loss of ln 16 = 4 bits a token is 1 bit a byte.
    assert measures.bits_per_byte(500 * math.log(16), 2000) == pytest.approx(1)


def test_flops_and_mfu() -> None:
    # PaLM 540B, appendix B of the paper: 118 layers, 48 heads of 256, context 2048; 238.3 thousand tokens/s on 6144 TPU v4
    # chips of 275 TFLOP/s are 46.2 % MFU.
    flops = measures.flops_per_token(540_350_000_000, 118, 48 * 256, 2048)
    used = measures.mfu(238_300, flops, 275e12, 6144)
    assert used == pytest.approx(0.462, abs=0.002)
    assert measures.mfu(1.0, flops, None, 1) is None


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA A100-SXM-64GB", None),  # Leonardo's, another chip
        ("NVIDIA H200 144G Prototype", None),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("Tesla T4", None),
    ],
)
def test_peak(name: str, peak: float | None) -> None:
    assert measures.peak_of(name, "bf16") == peak and measures.peak_of(name, "fp32") is None


RAMP = [[0, 0.25], [0.1, 0.5], [0.2, 1]]


@hypothesis_settings(deadline=None)  # the machine may be busy
@given(
    st.lists(
        st.tuples(st.floats(0.01, 0.99), st.floats(0.05, 0.95)), max_size=3, unique_by=(lambda p: p[0], lambda p: p[1])
    ),
    st.integers(1, 300),
    st.integers(1, 40),
)
def test_a_ramp_leaves_no_window_out(stages: list[tuple[float, float]], steps: int, sequences: int) -> None:
    """The windows of the steps follow one another without a gap; tokens, epochs and budgets are their sums."""
    shares, parts = [0, *sorted(share for share, _ in stages)], [*sorted(part for _, part in stages), 1]
    changes = {
        "batch_ramp": [list(pair) for pair in zip(shares, parts, strict=True)],
        "global_batch_tokens": 10 * sequences,
    }
    made = make_plan(settings(steps=steps, **changes), 100_001)
    at, sizes = 0, []
    for step in range(1, steps + 1):
        first, size = made.window_span(step)
        assert first == at and 1 <= size <= sequences and made.tokens_until(step - 1) == 10 * at
        sizes.append(size)
        at += size
    assert sizes == sorted(sizes) and made.tokens_until(steps) == 10 * at and made.epochs == at / 10_000
    # The fewest steps that reach a budget of tokens, or of epochs.
    for budget in ({"tokens": 10 * at}, {"epochs": (at - 0.5) / 10_000}):
        found = make_plan(settings(**budget, **changes), 100_001)
        assert found.tokens_until(found.steps) >= 10 * at
        assert (
            found.steps == 1
            or make_plan(settings(steps=found.steps - 1, **changes), 100_001).tokens_until(found.steps - 1) < 10 * at
        )


def test_a_ramp_by_numbers() -> None:
    made = make_plan(settings(steps=100, batch_ramp=RAMP, global_batch_tokens=160), 10_001)  # 16 windows
    assert made.stages == ((0, 4), (10, 8), (20, 16)) and made.window_divisor == 4
    assert [made.window_span(step) for step in (1, 10, 11, 20, 21, 100)] == [
        (0, 4),
        (36, 4),
        (40, 8),
        (112, 8),
        (120, 16),
        (1384, 16),
    ]
    assert made.tokens_until(100) == 14_000 and made.tokens_per_step == 160
    assert make_plan(settings(tokens=14_000, batch_ramp=RAMP, global_batch_tokens=160), 10_001).steps == 100
    # Half of 5 windows is rounded to 2, by which more steps are needed.
    late = make_plan(settings(tokens=300, batch_ramp=[[0, 0.5], [0.98, 1]], global_batch_tokens=50), 10_001)
    assert late.steps == 15 and late.tokens_until(15) == 300
    assert accumulation_steps(made, 2, 2) == 4 and fitting_micro_batch(made, 8, 2) == 2
    with pytest.raises(
        InputError,
        match=r"steps of 4 of the 16 .* = 4 × 2 = 8: the nearest shares are 0\.5; a smaller .*micro_batch allows others$",
    ):
        accumulation_steps(made, 4, 2)
    for wrong, words in (
        ([[0.1, 1]], r"begins at 0\.1 of the steps, not at 0"),
        ([[0, 0.5]], r"ends with 0\.5 of the batch, not with 1"),
        ([[0, 0.5], [0.2, 0.4], [0.3, 1]], "shares of the batch do not rise"),
        ([[0, 0.5], [0, 1]], "shares of the steps do not rise"),
    ):
        with pytest.raises(InputError, match=words):
            make_plan(settings(steps=5, batch_ramp=wrong), 10_001)
