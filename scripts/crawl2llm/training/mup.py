"""Settings that carry over from a narrow model to a wide one: the maximal update parametrization (µP).

Yang et al. 2022, Tensor Programs V (https://arxiv.org/abs/2203.03466), table 3, for Adam: with a model `m` times as wide as the one that
`learning_rate` was tuned on, a matrix inside the layers begins with 1/√m of the standard deviation and moves with 1/m of the rate; the head
(whose inputs alone grow) begins with 1/m and moves with 1/m; embeddings, norms and biases stay. Decoupled weight decay is `m` times as
large there, so that its product with the rate stays, as in https://github.com/microsoft/mup (mup/optim.py). Attention's scale
of 1/√(head size) is the architecture's own: wider means more heads, not larger ones.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from transformers import PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from crawl2llm.training import initial
from crawl2llm.training.engine_settings import EngineSettings

EMBEDDING, VECTOR, HEAD, INSIDE = "embedding", "vector", "head", "inside"


def width_factor(settings: EngineSettings) -> float:
    """How many times as wide the model is as the one of `base_width`; 1 where that is null."""
    base = settings.base_width
    return settings.hidden_size / base if base else 1.0


def kind_by_parameter(model: nn.Module) -> Callable[[nn.Parameter], str]:
    """A function that says what a parameter of this model is; a tied head is an embedding."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = model.get_output_embeddings()  # type: ignore[operator]

    def kind_of(parameter: nn.Parameter) -> str:
        if parameter.ndim < 2:
            return VECTOR
        if id(parameter) in tables:
            return EMBEDDING
        return HEAD if head is not None and parameter is head.weight else INSIDE

    return kind_of


def transposed_ids(model: nn.Module) -> set[int]:
    """The ids of the matrices that a model holds as [inputs, outputs], as GPT-2's layers do; those of a Linear are [outputs, inputs]."""
    return {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}


def scaled_weights(config: PreTrainedConfig, seed: int, wide: float) -> initial.Weights:
    """`initial.random_weights` of a model that is `wide` times as wide as its base."""
    model = initial.empty_model(config)
    kind = kind_by_parameter(model)
    kinds = {name: kind(parameter) for name, parameter in model.named_parameters()}
    share = {INSIDE: wide**-0.5, HEAD: 1 / wide}
    for name, value in initial.random_weights(config, seed):
        yield name, value.detach() * share[kinds[name]] if kinds.get(name) in share else value
