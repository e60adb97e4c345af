"""What is a mixture of experts, which tokens its routers' loss is of, and that every such type trains."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align import reward_inputs
from crawl2llm.training import engine, initial, model
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.mixture import mixture_of, report_notes
from crawl2llm.training.pair_batches import micro_batch, packed_micro_batch
from tests.unit.training.typed import engine_settings

SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
# Type → its own keys, (experts, of a token), whether transformers makes a loss of its routers; None: no mixture as it is configured.
KINDS: dict[str, tuple[dict[str, Any], tuple[int, int] | None, bool]] = {
    "mixtral": ({"num_local_experts": 4, "num_experts_per_tok": 2}, (4, 2), True),
    "olmoe": ({"num_experts": 4, "num_experts_per_tok": 2}, (4, 2), True),
    "qwen3_moe": ({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}, (4, 2), True),
    "granitemoe": ({"num_local_experts": 4, "num_experts_per_tok": 2}, (4, 2), True),
    "jetmoe": ({"num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8, "num_key_value_heads": 2}, (4, 2), True),
    "doge": ({}, None, False),
    "llama": ({}, None, False),
    "llama4_text": (
        {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 32, "head_dim": 8, "moe_layers": [0, 1]},
        (4, 1),
        False,
    ),
    "glm4_moe": (
        {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 0, "head_dim": 8},
        (4, 2),
        False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("group") / "file"
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def configured(kind: str, **more: Any) -> Any:
    return AutoConfig.for_model(kind, **{**SHAPE, **KINDS[kind][0], **more})


def made(config: Any, **changes: Any) -> Torch:
    keys = {"zero_stage": 0, "precision": "fp32", "engine": "torch", "learning_rate": 0.01, **changes}
    job = engine.Job(
        config=config,
        settings=engine_settings(**keys),
        device=torch.device("cpu"),
        micro_batch=2,
        accumulation=1,
        recomputed=False,
        values=lambda: initial.random_weights(config, 1),
    )
    return Torch(job)


def piece(length: int, seed: int) -> Any:
    ids = torch.randint(1, 64, (length,), generator=torch.Generator().manual_seed(seed)).numpy()
    return ids, length // 2, 0


def gradients(batch: list[MicroBatch], kind: str = "mixtral") -> tuple[float, dict[str, torch.Tensor]]:
    """(router loss, the gradient of the cross-entropy and of a router loss that counts as much)."""
    built = made(configured(kind, router_aux_loss_coef=1.0))
    found: dict[str, torch.Tensor] = {}

    def keep(*_: Any) -> tuple[float, bool]:
        found.update(
            {
                name: parameter.grad.clone()
                for name, parameter in built.model.named_parameters()
                if parameter.grad is not None
            }
        )
        return 1.0, False

    built._update = keep  # type: ignore[method-assign, assignment]
    update = built.step(batch, 1e-3)
    assert update.balance is not None
    return float(update.balance), found


def padded(batch: MicroBatch, columns: int, rows: int) -> MicroBatch:
    """The same with more padding on its right and below."""
    inputs, _, *places = batch
    shape = len(inputs) + rows, inputs.shape[1] + columns
    out = [
        torch.zeros(shape, dtype=torch.int64),
        torch.full(shape, IGNORE),
        *(torch.zeros(shape, dtype=torch.int64) for _ in places),
    ]
    for wide, narrow in zip(out, batch, strict=True):
        wide[: len(inputs), : inputs.shape[1]] = narrow
    if places:
        out[2][: len(inputs), inputs.shape[1] :] = torch.arange(columns)
        out[2][len(inputs) :] = torch.arange(shape[1])
    return tuple(out)


@pytest.mark.parametrize("kind", ["mixtral", "olmoe", "qwen3_moe"])
def test_padding_is_not_in_the_routers_loss(kind: str) -> None:
    """Pairs of one length, which need no padding, and the same with some: the same gradients."""
    bare = micro_batch([piece(12, 1), piece(12, 2)], 0)
    balance, expected = gradients([bare], kind)
    for more in (padded(bare, 7, 0), padded(bare, 0, 2), padded(bare, 5, 1)):
        other, found = gradients([more], kind)
        assert other == pytest.approx(balance, rel=1e-5)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def test_padding_between_lengths_is_that_of_transformers_own_mask() -> None:
    """Pairs of two lengths: transformers' loss of the routers under an attention mask."""
    config = configured("mixtral")
    pairs = [piece(6, 1), piece(14, 2)]
    inputs, targets = micro_batch(pairs, 0)
    mask = torch.tensor([[1] * 5 + [0] * 8, [1] * 13])
    plain = initial.fill_model(
        initial.empty_model(config, "cpu"), torch.device("cpu"), initial.random_weights(config, 1)
    )
    expected = plain(inputs, attention_mask=mask, output_router_logits=True).aux_loss
    assert gradients([(inputs, targets)])[0] == pytest.approx(float(expected), rel=1e-5)
    assert gradients([(inputs, targets)])[0] != pytest.approx(
        float(plain(inputs, output_router_logits=True).aux_loss), rel=1e-3
    )


def test_padding_does_not_count_where_weights_are_shared_out() -> None:
    """FSDP2 puts a class of its own around the model's."""
    bare = micro_batch([piece(12, 1), piece(12, 2)], 0)
    batches = bare, padded(bare, 7, 2)
    found = [made(configured("mixtral"), zero_stage=3).step([batch], 1e-3).balance for batch in batches]
    assert found[0] is not None and found[1] is not None
    assert float(found[1]) == pytest.approx(float(found[0]), rel=1e-5)


def test_packed_rows_count_all_but_what_is_left_over() -> None:
    bare = packed_micro_batch([[piece(8, 1), piece(6, 2)], [piece(13, 3)]], 0)
    balance, expected = gradients([bare])
    other, found = gradients([padded(bare, 6, 1)])
    assert other == pytest.approx(balance, rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def test_a_micro_batch_without_a_pair_does_not_count() -> None:
    """As the last one of a process that has fewer pairs than the others."""
    bare, nothing = micro_batch([piece(12, 1), piece(9, 2)], 0), micro_batch([], 0)
    balance, expected = gradients([bare])
    other, found = gradients([bare, nothing])
    assert other == pytest.approx(balance, rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_trains_and_what_is_not_balanced_has_a_note(kind: str) -> None:
    _, experts, balanced = KINDS[kind]
    config = configured(kind)
    found = mixture_of(config)
    assert (None if found is None else (found.number, found.per_token)) == experts
    assert bool(report_notes(config)) == (found is not None and not balanced)
    built = made(config, **({"optimizer": "muon"} if kind == "mixtral" else {}))
    tokens = torch.randint(1, 64, (2, 2, 17), generator=torch.Generator().manual_seed(0))
    update = built.step(tokens, 1e-3)
    assert update.applied and (update.balance is not None) == balanced
    counts = model.parameter_counts(built.model)
    if found and found.number > found.per_token:
        assert counts["multiplied"] < counts["total"]


def test_muon_takes_a_mixtures_routers_and_not_its_experts() -> None:
    built = made(configured("mixtral"), optimizer="muon")
    names = {id(parameter): name for name, parameter in built.model.named_parameters()}
    turned = {
        names[id(each)] for group in built.optimizer.param_groups if "momentum" in group for each in group["params"]
    }
    assert sum("gate" in name for name in turned) == 2 and not any("experts" in name for name in turned)


def test_a_reward_model_of_a_mixture_is_refused_and_of_a_type_that_could_be_one_is_not() -> None:
    for kind in ("mixtral", "glm4_moe", "llama4_text"):
        with pytest.raises(InputError, match="takes no model of type"):
            reward_inputs.reward_config(configured(kind), 0, "models.rm.from")
    assert reward_inputs.reward_config(configured("doge"), 0, "models.rm.from").num_labels == 1
    with pytest.raises(InputError, match="mixtures of experts are not taken"):
        reward_inputs.reward_config(
            configured("doge", is_moe=True, num_experts=16, num_experts_per_tok=2), 0, "models.rm.from"
        )


def test_all_types_of_transformers_are_told_apart() -> None:
    """What has routers in its code and is configured so is a mixture with a number of experts, of which a token has some."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    mixtures, balanced = set(), set()
    for kind in NAMES:
        try:
            config = AutoConfig.for_model(kind)
        except Exception:  # noqa: S112 - a type whose own defaults transformers refuses
            continue
        if found := mixture_of(config):
            mixtures.add(kind)
            assert 1 <= found.per_token < found.number, (kind, found)
            balanced |= {kind} if found.weight is not None else set()
    assert {"dbrx", "deepseek_v3", "gpt_oss", "llama4_text", "qwen3_5_moe", "jamba", "ernie4_5_moe"} <= mixtures
    assert {"dbrx", "jetmoe", "gpt_oss", "qwen2_moe"} <= balanced and not balanced & {
        "llama4_text",
        "deepseek_v3",
        "hy_v3",
    }
    assert not mixtures & {"llama", "doge", "gemma4_text", "gpt2", "mamba"}


def test_a_note_is_in_the_words_of_the_report(tmp_path: Path) -> None:
    (words,) = report_notes(configured("glm4_moe"))
    assert "'glm4_moe' is a mixture of 4 experts" in words and "mixtral" in words


class Products(TorchDispatchMode):
    """Grouped products and what they multiply, by type."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, ...]] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := function.overloadpacket.__name__) in ("_grouped_mm", "grouped_mm_fallback"):
            self.calls[name, *(str(one.dtype) for one in args[:2])] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("kind", ["mixtral", "olmoe", "qwen3_moe", "glm4_moe"])
def test_the_products_of_experts_are_in_bf16_without_zero_too(kind: str, autocast: bool) -> None:
    """By autocast, as all other products are, or by copies of the weights; with the loss and gradients of a loop over experts."""
    tokens = torch.randint(1, 64, (1, 2, 17), generator=torch.Generator().manual_seed(0))
    found = []
    for way in ("eager", "grouped_mm"):
        built = made(configured(kind), precision="bf16", autocast=autocast, gradient_clipping=0)
        built.model.set_experts_implementation(way)
        before = {name: value.clone() for name, value in built.weights().items()}
        built.optimizer = torch.optim.SGD(list(built.weights().values()), lr=1.0)
        built.set_learning_rate = lambda rate: None  # type: ignore[method-assign]
        with Products() as products:
            update = built.step(tokens, 0.01)
        found.append((float(update.loss), {name: before[name] - value for name, value in built.weights().items()}))
        low = "torch.bfloat16"
        layers, matrices, directions = 2, 2, 3
        calls = {("_grouped_mm", low, low): layers * matrices * directions} if way == "grouped_mm" else {}
        assert update.applied and products.calls == calls
    assert all(value.dtype == torch.float32 for value in built.weights().values())
    (loop, by_loop), (grouped, by_group) = found
    assert grouped == pytest.approx(loop, abs=2e-3)
    for name, gradient in by_loop.items():
        assert (by_group[name] - gradient).norm() <= 0.03 * gradient.norm(), name
