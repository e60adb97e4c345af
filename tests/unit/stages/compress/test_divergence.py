"""The loss of a student: equal, with its gradient, to torch's kl_div in fp64, in pieces too, and where only likeliest tokens are known."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import teacher_output
from crawl2llm.stages.compress.distilling_engine import DistillingHead
from crawl2llm.stages.compress.divergence import Divergence, fewer, likeliest
from crawl2llm.training.batch import IGNORE

VOCABULARY, WIDTH, LENGTH = 50, 8, 12
WAYS = [(False, 1.0, 0.0), (True, 1.0, 0.0), (False, 2.0, 0.3), (True, 0.5, 0.7)]


def independent(
    way: tuple[bool, float, float], student: torch.Tensor, teacher: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The same by torch's own functions, whole."""
    reverse, temperature, share = way
    ours, theirs = (functional.log_softmax(logits / temperature, -1) for logits in (student, teacher))
    pair = (theirs, ours) if reverse else (ours, theirs)
    divergence = functional.kl_div(*pair, reduction="sum", log_target=True)
    return (1 - share) * temperature**2 * divergence + share * functional.cross_entropy(
        student, targets, reduction="sum"
    )


@pytest.mark.parametrize("way", WAYS)
def test_in_pieces_as_torch_in_fp64(way: tuple[bool, float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows, of which some targets do not count: value, and gradients of hidden states and head."""
    monkeypatch.setattr(teacher_output, "PIECE", 4 * VOCABULARY * 5)  # five tokens at once
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(WIDTH, VOCABULARY), torch.randn(2, LENGTH, WIDTH, requires_grad=True)
    teacher = 3 * torch.randn(2, LENGTH, VOCABULARY)
    targets = torch.randint(VOCABULARY, (2, LENGTH))
    targets[0, :3] = IGNORE
    mask = targets != IGNORE
    wide, whole = head.weight.detach().double().requires_grad_(), hidden.detach().double().requires_grad_()
    logits = whole @ wide.T + head.bias.detach().double()
    expected = independent(way, logits[mask], teacher.double()[mask], targets[mask])
    expected.backward()
    distilling = DistillingHead(head, VOCABULARY, Divergence(*way).of_logits, "here")
    distilling.targets, distilling.lesson = targets, (teacher,)
    loss = head(hidden)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, theirs in ((hidden, whole), (head.weight, wide)):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_the_others_are_one_more_token(way: tuple[bool, float, float]) -> None:
    """Merged by hand in fp64; fewer tokens than were written give the same as if so few had been."""
    torch.manual_seed(1)
    student = torch.randn(LENGTH, VOCABULARY, requires_grad=True)
    teacher, targets = 3 * torch.randn(LENGTH, VOCABULARY), torch.randint(VOCABULARY, (LENGTH,))
    ids, logprobs = likeliest(teacher, way[1], 6)
    assert ids[:, 0].equal(teacher.argmax(1)) and logprobs.exp().sum(1).allclose(torch.ones(LENGTH))
    few = fewer(logprobs.half().float(), 4)
    torch.testing.assert_close(few, likeliest(teacher, way[1], 4)[1], rtol=2e-3, atol=2e-3)

    def merged(logits: torch.Tensor) -> torch.Tensor:
        """Logits of 7 tokens, of which the last is all others."""
        shares = (logits.double() / way[1]).softmax(1)
        own = shares.gather(1, ids)
        return way[1] * torch.cat([own, 1 - own.sum(1, keepdim=True)], 1).log()

    whole = student.detach().double().requires_grad_()
    expected = independent((way[0], way[1], 0), merged(whole), merged(teacher), 0 * targets) * (1 - way[2])
    expected = expected + way[2] * functional.cross_entropy(whole, targets, reduction="sum")
    expected.backward()
    loss = Divergence(*way).of_likeliest(student, targets, ids, logprobs)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert student.grad is not None and whole.grad is not None
    torch.testing.assert_close(student.grad.double(), whole.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_teacher_that_bounds_its_logits_is_refused(kind: str) -> None:
    """Its hidden states would come out bounded, too, in the shape of others."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    more = {"head_dim": 8, "num_key_value_heads": 1, "vocab_size": VOCABULARY}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **more)).eval()
    inputs = torch.randint(VOCABULARY, (2, LENGTH))
    expected = model(inputs).logits
    logits = teacher_output.headless(model)
    if kind == "gemma2":
        with pytest.raises(InputError, match="changes its logits after the head"):
            teacher_output.hidden_states(model, inputs, "here")
    else:
        torch.testing.assert_close(logits(teacher_output.hidden_states(model, inputs, "here")), expected)
