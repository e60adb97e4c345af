"""What trainings hold beside a model that learns: counted by tensors that real passes make, and compared with the estimate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.commands.plan import tuning
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import value_model
from crawl2llm.training import initial, memory, rounding, sampling
from crawl2llm.training.estimate.shape import Shape, Training, keys_and_values, sampling_bytes, with_value_model
from crawl2llm.training.estimate.torch import state_bytes, weight_copies
from crawl2llm.training.model import count_parameters
from tests.unit.training.typed import placed, tuning_settings

ANSWERS, PROMPT, TOKENS = 3, 5, 7


def config(tied: bool = True, **more: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied, architectures=["LlamaForCausalLM"], **more,
    )  # fmt: skip


def shape(tied: bool = True, context: int = PROMPT + TOKENS) -> Shape:
    return memory.shape_of_config(config(tied), count_parameters(config(tied)), context)


def how(**more: Any) -> Training:
    return Training(**{"micro_batch": ANSWERS, "precision": "fp32", "zero_stage": 0, "processes": 1, **more})


def test_keys_and_values_of_drawn_answers() -> None:
    """All answers run to their last token, so that the cache holds the whole context, but for the last token that is never read."""
    model = LlamaForCausalLM(config()).eval()
    kept: list[Any] = []

    def following(*given: Any) -> tuple[torch.Tensor, Any]:
        logits, cache = sampling.next_logits(model, *given)
        kept[:] = [cache, logits]
        return logits, cache

    draws = torch.rand(ANSWERS, TOKENS, dtype=torch.float64)
    found = sampling.draw_together(following, [[1, 2, 3, 4, 5]] * ANSWERS, draws, sampling.Choice(end=95 + 1))
    assert [len(answer.ids) for answer in found] == [TOKENS] * ANSWERS
    cache, logits = kept
    held = sum(part.numel() * part.element_size() for layer in cache.layers for part in (layer.keys, layer.values))
    drawn = Shape(**{**vars(shape(context=PROMPT + TOKENS - 1)), "cached_layers": 3})
    layer = keys_and_values(drawn, how()) - held
    assert layer == held // 3  # which is once more there while it grows
    more = replace(drawn, drawn_rows=2 * ANSWERS)
    assert keys_and_values(more, how()) == 2 * keys_and_values(drawn, how())
    assert (
        sampling_bytes(more, how())
        == 2 * sampling_bytes(drawn, how())
        == 2 * ANSWERS * 96 * (logits.element_size() + 2 * 8)
    )


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_second_copy_of_weights_that_are_rounded(precision: str, recomputed: bool) -> None:
    """What autograd keeps of a forward pass, by the storage that it lies in, with and without rounding; parameters left out."""
    kept = {}
    for aware in ("none", "nf4"):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config())
        model.config.use_cache = False
        rounding.round_linear_layers(model, tuning_settings(quantize_aware=aware), "here")
        if recomputed:
            model.activation_checkpointing_enable({"use_reentrant": False})
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        found: dict[int, torch.Tensor] = {}

        def keep(value: torch.Tensor, found: dict[int, torch.Tensor] = found, own: set[int] = own) -> torch.Tensor:
            if value.untyped_storage().data_ptr() not in own:
                found[value.untyped_storage().data_ptr()] = value  # held, so that no other takes its place
            return value

        low = precision == "bf16"
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value),
            torch.autocast("cpu", torch.bfloat16, enabled=low),
        ):
            loss = model(torch.arange(8)[None]).logits.float().sum()
        kept[aware] = sum(value.untyped_storage().nbytes() for value in found.values())
        del loss
    more = kept["nf4"] - kept["none"]
    given = shape(context=8)
    estimated = weight_copies(given, how(precision=precision, rounded=True, recomputed=recomputed, micro_batch=1))
    plain = weight_copies(given, how(precision=precision, recomputed=recomputed, micro_batch=1))
    if recomputed:  # a layer is done again in the backward pass, and then gone; nothing of it is kept before
        assert more == 0 and estimated - plain == (4 * given.layer_parameters if precision == "fp32" else 0)
    elif precision == "fp32":
        assert more == pytest.approx(estimated - plain, rel=0.01)  # of the layers all but the norms
    else:
        assert estimated == plain and more == pytest.approx(
            0, abs=0.02 * plain
        )  # in the place of the copies that autocast makes


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_of_values(tied: bool) -> None:
    """Parameters, layers and tables as transformers builds them; no mean is kept of it."""
    both = value_model.valued_config(config(tied), 0, "here")
    made = initial.empty_model(both)
    found = with_value_model(shape(tied))
    own = sum(value.numel() for name, value in made.named_parameters() if name.startswith(value_model.PREFIX))
    assert (
        found.parameters == count_parameters(both)
        and found.value_parameters == own
        and found.layers == len(initial.decoder_layers(made))
    )
    tables = {
        id(module.weight): module.weight.numel() for module in made.modules() if isinstance(module, torch.nn.Embedding)
    }
    head = made.get_output_embeddings().weight
    assert found.outside_parameters == sum(tables.values()) + (0 if id(head) in tables else head.numel())
    _, optimizer = state_bytes(found, how(ema=True))
    assert optimizer == 8 * count_parameters(both) + 4 * count_parameters(config(tied))


def test_parts_name_what_is_beside() -> None:
    """Of a micro-batch whose activations are computed again, keys and values may be the most that there is."""
    settings = replace(tuning_settings("align.train", method="ppo", engine="torch", zero_stage=0), ema=0.5)
    at = placed(micro_batch=64)
    long = Shape(parameters=10**9, layers=32, hidden=2048, intermediate=5632, vocabulary=256, context=8192)
    plain = memory.memory_parts(long, settings, at, True)
    judged = memory.memory_parts(Shape(**{**vars(long), "reward_parameters": 10**8}), settings, at, True)
    assert judged == {**plain, "reward models": 4 * 10**8}
    drawn = Shape(**{**vars(long), "cached_layers": 32})
    assert memory.memory_parts(drawn, settings, at, True) == plain  # activations need more than keys and values
    again = replace(at, activation_checkpointing=True)
    before, now = (memory.memory_parts(one, settings, again, True) for one in (long, drawn))
    assert now["keys and values"] == 2 * 4 * 64 * 8192 * 2048 * 33 and sum(now.values()) > sum(before.values())
    assert "activations" not in now and now["weights"] >= 4 * 10**9


def test_the_preflight_counts_what_the_training_counts(tmp_path: Path) -> None:
    """Of a reward model of this run and of one of another, whose manifest says how large it is."""
    other = tmp_path / "rm.manifest.json"
    made = Manifest("align.reward", "0" * 16)
    made.summary = {"parameters": 12_345}
    made.write(other, [])
    entries = [{"reward": "model", "name": "rm"}, {"reward": "model", "manifest": str(other)}, {"reward": "exact"}]

    def foreseen(keys: dict[str, Any], step: str) -> Shape:
        return tuning.shape_for(shape(), settings_class(step).model_validate(keys), step)

    own = {"method": "ppo", "rewards": entries, "max_length": 48}
    found = foreseen(own, "align.train")
    body = count_parameters(value_model.valued_config(config(), 0, "here")) - count_parameters(config())
    assert (
        found.reward_parameters == body + 12_345
        and found.cached_layers == 3
        and found.value_parameters == body
        and found.context == 48
    )
    assert foreseen({**own, "method": "grpo"}, "align.train").value_parameters == 0
    assert foreseen({**own, "method": "dpo"}, "align.train") == shape(context=48)
    assert foreseen({"max_length": 48}, "align.reward").vocabulary == 1
