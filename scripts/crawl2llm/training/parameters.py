"""The parameters of a model by its shape, without building it: all, those that a token uses, and those of the embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import ResolvedModel


@dataclass(frozen=True)
class Family:
    """What a type of transformers adds to a Llama, and its own value of a key that is null (0: as many as heads, or 4 × hidden size)."""

    intermediate_size: int
    kv_heads: int = 0
    experts: str = ""  # the configuration's key for the number of experts
    number: int = 0  # its own value
    chosen: int = 0  # its own num_experts_per_tok
    input_biases: bool = False  # of queries, keys and values
    wide_norms: bool = False  # of queries and keys, over all their heads
    head_norms: bool = False  # of the queries and keys of each head


# The default values are those of the configuration classes of transformers 5.23; tests compare every count with a model's own.
FAMILIES = {
    "llama": Family(11_008),
    "mistral": Family(14_336, kv_heads=8),
    "qwen2": Family(22_016, kv_heads=32, input_biases=True),
    "qwen3": Family(22_016, kv_heads=32, head_norms=True),
    "mixtral": Family(14_336, kv_heads=8, experts="num_local_experts", number=8, chosen=2),
    "olmoe": Family(2048, experts="num_experts", number=64, chosen=8, wide_norms=True),
    "gpt2": Family(0),
}


def model_of_summary(shape: Mapping[str, Any]) -> ResolvedModel:
    """`pretrain.train.model` as the `shape` of a manifest's summary has it, beside the vocabulary."""
    from crawl2llm.training.pretraining_settings import ResolvedModel

    return ResolvedModel.model_construct(**shape)


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of a model. `active`: those that one token uses, all but the experts that are not chosen for it."""

    total: int
    active: int
    embedding: int  # tables of tokens and positions, and the output's matrix where it is not the same
    multiplied: int  # active ones that a token is multiplied with: the output's matrix is, tables are looked up
    width: int  # heads × head size, of attention
    kv: int  # the same of keys, and of values
    feed: int  # width of a feed-forward layer; of one expert
    chosen: int  # experts of a token; 1 where there is one feed-forward layer for all
    experts: int  # parameters of all experts; 0 where there are none
    exact: bool  # False: counted as a Llama of this shape, since the type is none of FAMILIES

    @property
    def non_embedding(self) -> int:
        """Parameters that are not embeddings."""
        return self.total - self.embedding


def count_model_parameters(model: ResolvedModel, vocabulary: int) -> ParameterCounts:
    """The parameters of `pretrain.train.model` and a vocabulary of so many entries."""
    family, more = FAMILIES.get(model.type, FAMILIES["llama"]), model.overrides
    hidden, heads, layers = model.hidden_size, model.heads, model.layers
    size = more.get("head_dim") or hidden // heads
    wide, kv = heads * size, (model.kv_heads or family.kv_heads or heads) * size
    feed = model.intermediate_size or family.intermediate_size or 4 * hidden
    tables = vocabulary * hidden
    head = 0 if model.tie_embeddings else tables
    if model.type == "gpt2":
        # Two matrices a feed-forward layer, biases, norms with biases, a table of positions.
        feed = more.get("n_inner") or 4 * hidden
        kv, chosen, number = hidden, 1, 1
        layer, idle = 4 * hidden * hidden + 2 * hidden * feed + 9 * hidden + feed, 0
        positions, last = model.context * hidden, 2 * hidden
    else:
        number = more.get(family.experts, family.number) if family.experts else 1
        chosen = more.get("num_experts_per_tok", family.chosen) if family.experts else 1
        layer = 2 * hidden * (wide + kv) + 3 * hidden * feed * number + 2 * hidden
        layer += hidden * number if family.experts else 0  # the router
        layer += (wide + 2 * kv) * family.input_biases + (wide + kv) * family.wide_norms + 2 * size * family.head_norms
        idle, positions, last = 3 * hidden * feed * (number - chosen), 0, hidden
    inside = layers * layer + last
    total = inside + tables + positions + head
    return ParameterCounts(
        total=total,
        active=total - layers * idle,
        embedding=tables + positions + head,
        multiplied=inside - layers * idle + tables,
        width=wide,
        kv=kv,
        feed=feed,
        chosen=chosen,
        experts=layers * 3 * hidden * feed * number if family.experts else 0,
        exact=model.type in FAMILIES,
    )
