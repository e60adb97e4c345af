"""Answers that are drawn in slots are those that are drawn together, for any number of slots; what is computed in vain, and waited for."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.core.errors import InputError
from crawl2llm.training import sampling, slots
from crawl2llm.training.sampling import Choice
from tests.unit.training.test_sampling import Asked

END, VOCABULARY, MOST = 7, 24, 10
CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "head_dim": 16, "pad_token_id": None,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
SLIDING = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
TYPES: dict[str, dict[str, Any]] = {
    "gemma2": SHAPE | SLIDING,
    "gemma3_text": SHAPE | SLIDING,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "gpt_neox": SHAPE,
    "llama": SHAPE,
    "mistral": SHAPE | {"sliding_window": 6},
    "mixtral": SHAPE | EXPERTS | {"sliding_window": None},
    "olmo2": SHAPE,
    "olmoe": SHAPE | EXPERTS,
    "phi3": SHAPE | {"sliding_window": 6},
    "qwen2": SHAPE,
    "qwen3": SHAPE | SLIDING | {"use_sliding_window": True},
}


def model(kind: str) -> Any:
    """A tiny model whose logits differ much, so that what it writes depends on every token before."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, eos_token_id=None, bos_token_id=None, tie_word_embeddings=False, **TYPES[kind]
    )
    made = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in made.parameters():
            if value.ndim > 1:
                value.mul_(6)
    return made


def prompts(count: int = 6) -> list[list[int]]:
    chance = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, 14, (count,), generator=chance).tolist()
    made = [torch.randint(8, VOCABULARY, (size,), generator=chance).tolist() for size in sizes]
    return [*made, made[0], made[1]]  # two come twice


def draws(count: int, most: int = MOST) -> torch.Tensor:
    return torch.rand(count, most, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def drawer(language_model: Any, choice: Choice, count: int, **more: Any) -> slots.SlotDrawer:
    return slots.SlotDrawer(partial(sampling.next_logits, language_model), CPU, choice, count, **more)


def test_every_type_is_tried() -> None:
    assert tuple(TYPES) == slots.SLOT_TYPES


@pytest.mark.parametrize("kind", TYPES)
def test_in_slots_as_together_and_alone(kind: str) -> None:
    """Greedy and sampled; the second time in the cache of the first."""
    made, given = model(kind), prompts()
    following, chance = partial(sampling.next_logits, made), draws(len(given))
    for choice, count, stride in ((Choice(END, 0.0, with_nats=True), 3, 1), (Choice(END, 4.0, 0.95), 4, 5)):
        together = sampling.draw_together(following, given, chance, choice)
        alone = sampling.draw_together(following, given[:1], chance[:1], choice)
        assert alone[0].ids == together[0].ids
        drawn = drawer(made, choice, count, stride=stride)
        for _ in range(1 + (kind == "llama")):
            answers = drawn.draw(given, chance)
            assert [answer.ids for answer in answers] == [answer.ids for answer in together]
        for answer, expected in zip(answers, together, strict=True):
            assert answer.nats == pytest.approx(expected.nats, abs=2e-3)
    assert len({token for answer in together for token in answer.ids}) > 3
    assert kind != "llama" or len({len(answer.ids) for answer in together}) > 1


def counting(
    inputs: torch.Tensor, mask: torch.Tensor | None, places: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """After token t comes t − 1, to the end token 0, so that a prompt's last token is the length of its answer."""
    return torch.nn.functional.one_hot((inputs[:, -1] - 1).clamp(min=0), 400).float(), cache


def test_answers_of_uneven_length_leave_little_in_vain() -> None:
    """Lengths as of answers that end with the same probability after each token; together, the longest holds up all others."""
    chance = torch.Generator().manual_seed(3)
    lengths = (torch.rand(128, generator=chance).log() / math.log(1 - 1 / 80)).long().clamp(1, 320).tolist()
    given = [[5, 6, 9, length] for length in lengths]
    held = {count: drawer(None, Choice(0, 0.0), count, stride=16) for count in (8, 32, 128)}
    for drawn in held.values():
        drawn.following = counting
        answers = drawn.draw(given, draws(len(given), 320))
        assert [len(answer.ids) for answer in answers] == lengths
        assert drawn.positions.computed - drawn.positions.idle >= sum(lengths)
    shares = {count: drawn.positions.idle / drawn.positions.computed for count, drawn in held.items()}
    assert max(shares.values()) < 0.2, shares
    together = 1 - sum(lengths) / (len(lengths) * max(lengths))
    assert together > 0.7


def test_a_round_of_tokens_waits_once() -> None:
    """Nothing in a step asks the device, and after each round one copy comes back."""
    made, given = model("llama"), prompts()
    drawn = drawer(made, Choice(END, 1.0, 0.9, with_nats=True), 4, stride=16)
    drawn.draw(given, draws(len(given)))
    assert drawn.cache is not None
    drawn.cache.rows, drawn.cache.visible = 4, 16
    drawn.column.zero_()
    with Asked() as asked, drawn.cache.masking_rows(), torch.no_grad():
        drawn._step()
    assert asked.calls == Counter()


def test_a_shape_is_captured_when_it_comes_again_and_left_if_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given, choice = model("llama"), prompts(), Choice(END, 1.0)
    chance = draws(len(given))
    plain = [answer.ids for answer in drawer(made, choice, 4, stride=4).draw(given, chance)]
    shapes: Counter[tuple[int, int]] = Counter()

    class Graph:
        def __init__(self, drawn: slots.SlotDrawer) -> None:
            self.drawn = drawn

        def replay(self) -> None:
            assert self.drawn.cache
            shapes[self.drawn.cache.rows, self.drawn.cache.visible] += 1
            self.drawn._step()

    monkeypatch.setattr(slots.SlotDrawer, "_capture_step", lambda drawn: Graph(drawn))
    drawn = drawer(made, choice, 4, stride=4, captured=True)
    drawn.block = 16
    assert [answer.ids for answer in drawn.draw(given, chance)] == plain
    assert shapes and all(visible in (16, 32) for _, visible in shapes) and shapes.keys() <= drawn.graphs.keys()

    def fail(drawn: slots.SlotDrawer) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(slots.SlotDrawer, "_capture_step", fail)
    drawn = drawer(made, choice, 4, stride=4, captured=True)
    assert [answer.ids for answer in drawn.draw(given, chance)] == plain and not drawn.captured


def test_what_does_not_fit_is_halved_or_refused() -> None:
    """An allocation of more than three rows fails."""
    made, given, choice = model("llama"), prompts(), Choice(END, 1.0)
    chance = draws(len(given))
    plain = [answer.ids for answer in drawer(made, choice, 3).draw(given, chance)]
    following = partial(sampling.next_logits, made)
    rooms = {"rows": 3}

    def narrow(inputs: torch.Tensor, mask: Any, places: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        if cache.slots > rooms["rows"]:
            raise torch.OutOfMemoryError("out of memory")
        return following(inputs, mask, places, cache)

    drawn = slots.SlotDrawer(narrow, CPU, choice, 8)
    assert [answer.ids for answer in drawn.draw(given, chance)] == plain and drawn.slots == 2
    rooms["rows"] = 0
    with pytest.raises(InputError, match="memory ran out while 1 answers of up to"):
        slots.SlotDrawer(narrow, CPU, choice, 8).draw(given, chance)


def test_a_listener_hears_each_token_once_and_may_end_an_answer() -> None:
    made, given, choice = model("llama"), prompts(), Choice(END, 1.0)
    chance = draws(len(given))
    plain = drawer(made, choice, 4).draw(given, chance)
    heard: dict[int, list[int]] = {number: [] for number in range(len(given))}

    def listen(number: int, ids: list[int]) -> bool:
        heard[number] += ids
        return number != 2

    answers = drawer(made, choice, 4, stride=3).draw(given, chance, listen)
    assert [answer.ids for answer in answers] == list(heard.values())
    assert heard.pop(2) == plain[2].ids[:3]
    assert heard == {number: answer.ids for number, answer in enumerate(plain) if number != 2}
