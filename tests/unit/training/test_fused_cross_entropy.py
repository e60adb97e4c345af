"""Cross-entropy with its gradient in place: torch's own, for any shape."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.training import fused_cross_entropy


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.floats(0, 200), st.integers(0, 2**31))
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_as_torch_has_it(rows: int, count: int, vocabulary: int, spread: float, seed: int) -> None:
    """Also where the last rows are fewer, with logits far apart, and for a loss that is scaled."""
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 6, generator=random, requires_grad=True)
    head = torch.randn(vocabulary, 6, generator=random, requires_grad=True)
    targets = torch.randint(0, vocabulary, (count,), generator=random)
    found = []
    before = fused_cross_entropy.CACHE
    fused_cross_entropy.CACHE = rows * vocabulary * 4
    try:
        for loss_of in (functional.cross_entropy, fused_cross_entropy.cross_entropy):
            loss = loss_of((hidden @ head.T) * spread, targets)
            found.append((loss.detach(), *torch.autograd.grad(loss * 0.25, (hidden, head))))
    finally:
        fused_cross_entropy.CACHE = before
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, spread))


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_the_sum_over_targets_that_count(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch has it, and none where no target counts."""
    monkeypatch.setattr(fused_cross_entropy, "CACHE", rows * 11 * 4)
    logits = torch.randn(9, 11, generator=torch.Generator().manual_seed(3), requires_grad=True)
    for ignored in ([2, 3, 8], [], range(9)):
        targets = torch.arange(9) + 1
        targets[list(ignored)] = -100
        wanted = functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")
        found = fused_cross_entropy.summed_cross_entropy(logits * 1.0, targets, -100)
        torch.testing.assert_close(found, wanted)
        for one, other in zip(*(torch.autograd.grad(2 * loss, logits) for loss in (found, wanted)), strict=True):
            torch.testing.assert_close(one, other)


def test_z_loss_is_in_the_gradient_alone() -> None:
    logits = torch.randn(7, 11, requires_grad=True)
    targets = torch.randint(0, 11, (7,))
    plain = functional.cross_entropy(logits, targets)
    (wanted,) = torch.autograd.grad(plain + 0.3 * logits.logsumexp(1).square().mean(), logits)
    loss = fused_cross_entropy.cross_entropy(logits * 1.0, targets, 0.3)
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(loss.detach(), functional.cross_entropy(logits.detach(), targets))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value: float) -> None:
    """Steps with such a loss or gradient are skipped."""
    logits = torch.randn(3, 5)
    logits[1, 2] = value
    logits.requires_grad_()
    loss = fused_cross_entropy.cross_entropy(logits * 1.0, torch.tensor([0, 1, 2]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not loss.isfinite() and not gradient[1].isfinite().all() and gradient[0].isfinite().all()


def test_a_second_pass_is_refused() -> None:
    """It would find a gradient that is scaled already."""
    logits = torch.randn(3, 5, requires_grad=True)
    loss = fused_cross_entropy.cross_entropy(logits * 1.0, torch.tensor([0, 1, 2]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        loss.backward()


def test_a_graph_that_needs_the_logits_is_refused() -> None:
    """Logits that are used up must not be needed for another gradient: torch sees that they have changed."""
    logits = torch.randn(3, 5, requires_grad=True).exp()
    loss = fused_cross_entropy.cross_entropy(logits, torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_what_is_measured_in_pieces_is_what_torch_finds(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of logits that are there, bit for bit whatever the pieces; and of a head that makes them a piece at a time."""
    random = torch.Generator().manual_seed(4)
    head = torch.nn.Linear(6, 11, bias=False)
    hidden, targets = torch.randn(3, 5, 6, generator=random), torch.randint(0, 11, (3, 5), generator=random)
    targets[0, :3] = targets[2] = -100
    with torch.no_grad():
        logits = head(hidden)
    wanted = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="none")
    monkeypatch.setattr(fused_cross_entropy, "CACHE", rows * 11 * 4)
    assert fused_cross_entropy.loss_by_row(logits, targets).equal(wanted.double().reshape(3, 5).sum(1))

    sizes: list[int] = []
    made = fused_cross_entropy.Head(head, 0.0, rows, "pretrain.train")
    plain = made.logits
    made.logits = lambda part: (sizes.append(len(part)), plain(part))[1]  # type: ignore[func-returns-value]
    found = made.loss_by_row(lambda: SimpleNamespace(logits=head(hidden)), targets)
    torch.testing.assert_close(found, wanted.double().reshape(3, 5).sum(1))
    assert max(sizes) <= rows and sum(sizes) == 15
    assert head(hidden).equal(logits), "afterwards it makes logits again"
