"""A language model with a model of values beside it, which an engine trains as one: two bodies, one optimizer, one checkpoint.

The model of values is the body of the model that is made from, as that of a reward model, with a head that gives one number at every
token and begins at 0. Its parameters begin with `value_model.`; all others have the names that they have in the language model, so that
checkpoints, averages and sharding work as they do without it. As TRL's PolicyAndValueWrapper (trl/experimental/ppo/ppo_trainer.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedConfig
from transformers.models.auto.auto_factory import _get_model_class
from transformers.utils import ModelOutput

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align import reward_inputs
from crawl2llm.stages.align.engine import Loss, LossEngine
from crawl2llm.training import engine, initial
from crawl2llm.training.batch import MicroBatch
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.engines.deepspeed_ema import Parts
from crawl2llm.training.muon import local_part

VALUE_MODEL = "value_model"
PREFIX = f"{VALUE_MODEL}."  # begins the names of its parameters
HEAD = f"{PREFIX}score."
# What a micro-batch adds to the loss: fp32 logits [n, length, vocabulary], int64 targets and fp32 values [n, length] → a number.
ValuedLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class ValuedOutput(ModelOutput):
    """What a forward pass with values returns: logits [n, length, vocabulary], and values [n, length] as `expected`."""

    logits: torch.Tensor | None = None
    expected: torch.Tensor | None = None


def valued_config(config: PreTrainedConfig, end: int, key: str) -> PreTrainedConfig:
    """`config`, of a language model, as that of one with a model of values: `initial.empty_model` makes both of it.

    end: the id of the end token. key: of the config, for errors. Raises InputError for an architecture of which there is none. A class is
    made for each: transformers finds a model's class by that of its configuration.
    """
    try:
        scores = reward_inputs.reward_config(config, end, key)
    except InputError as error:
        raise InputError(str(error).replace("align.reward", "method ppo of align.train", 1)) from error
    plain = _get_model_class(config, AutoModelForCausalLM._model_mapping)

    def initialize(self: Any, given: PreTrainedConfig, *args: Any, **more: Any) -> None:
        plain.__init__(self, given, *args, **more)
        setattr(
            self,
            VALUE_MODEL,
            AutoModelForSequenceClassification.from_config(scores, trust_remote_code=False, dtype=torch.float32),
        )

    def forward(self: Any, *args: Any, values: bool = False, **more: Any) -> Any:
        output = plain.forward(self, *args, **more)
        if not values:
            return output
        value_model = getattr(self, VALUE_MODEL)
        hidden = value_model.base_model(*args, **more)[0]
        return ValuedOutput(logits=output.logits, expected=value_model.score(hidden)[..., 0].float())

    name = type(config).__name__
    kind = type(f"Valued{name}", (type(config),), {})
    valued_class = type(
        f"Valued{plain.__name__}", (plain,), {"config_class": kind, "__init__": initialize, "forward": forward}
    )
    AutoModelForCausalLM.register(kind, valued_class)
    valued = copy.deepcopy(config)
    valued.__class__ = kind
    return valued


def initial_weights(weights: initial.Weights, parent: Callable[[str], torch.Tensor | None]) -> initial.Weights:
    """The values to begin with of a model of `valued_config`: the body of the model of values is the parent's, its head is 0.

    weights: those of the parent, and any for the model of values. parent: the value of a parameter of the parent, None if it has none.
    """
    for name, value in weights:
        if name.startswith(HEAD):
            yield name, torch.zeros_like(value)
        elif name.startswith(PREFIX) and (parent_value := parent(name.removeprefix(PREFIX))) is not None:
            yield name, parent_value
        else:
            yield name, value


class EngineWithValues(LossEngine):
    """Any engine of a model of `valued_config`. The EMA of the weights, and the weights that are given away, lack the model of values."""

    ema: dict[Any, torch.Tensor]
    sizes: dict[str, torch.Size]

    def step_valued(self, batch: Sequence[MicroBatch], rate: float, losses: Sequence[ValuedLoss]) -> engine.Update:
        """As `step_by`, by losses of values too."""
        return self.step_by(batch, rate, cast(Sequence[Loss], losses))

    def _micro_batch_loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, more: dict[str, Any], scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, Any]:
        if self.losses is None:
            return super()._micro_batch_loss(inputs, targets, more, scale)
        output = self.forward(inputs, values=True, **more)
        loss = cast(ValuedLoss, next(self.losses))
        return loss(output.logits.float(), targets, output.expected), output

    @torch.no_grad()
    def logits_and_values(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(fp32 logits [n, length, vocabulary], fp32 values [n, length]) of token ids [n, length], no gradient. A collective call."""
        self.model.eval()
        output = self.forward(inputs, values=True)
        self.model.train()
        self.reshard_weights()
        return output.logits.float(), output.expected

    def master_weights(self) -> initial.Weights:
        """As `engine.Engine.master_weights`, of the language model alone."""
        for name, value in cast(Any, super()).master_weights():
            if not name.startswith(PREFIX):
                yield name, value

    # The EMA of the weights, in which the reference is kept, of the language model alone: of the engine torch …

    def _finish_setup(self, job: engine.Job) -> None:
        super()._finish_setup(job)
        self.ema = {key: value for key, value in self.ema.items() if not str(key).startswith(PREFIX)}

    def _swap_ema(self) -> None:
        parameters = dict(self.model.named_parameters())
        for name, value in self.ema.items():
            current, ema = local_part(parameters[name].detach()), local_part(value)
            before = current.clone()
            current.copy_(ema)
            ema.copy_(before)

    def _begin_ema(self) -> None:
        parameters = dict(self.model.named_parameters())
        for name, value in self.ema.items():
            local_part(value).copy_(local_part(parameters[name].detach()))

    # … and of DeepSpeed, which has parts of weights, and puts whole ones together by their sizes.

    def _own_parts(self) -> Parts:
        parts: Parts = cast(Any, super())._own_parts()
        return {part: value for part, value in parts.items() if not part[0].startswith(PREFIX)}

    @contextmanager
    def using_ema(self) -> Iterator[None]:
        """As `engine.Engine.using_ema`; values are not to be computed meanwhile."""
        all_sizes = getattr(self, "sizes", {})
        self.sizes = {name: size for name, size in all_sizes.items() if not name.startswith(PREFIX)}
        try:
            with cast(Any, super()).using_ema():
                yield
        finally:
            self.sizes = all_sizes


def engine_class(name: str) -> type[EngineWithValues]:
    """The class of an engine by its name, as stages/align/engine.py has it, of a model with a model of values."""
    return cast(type[EngineWithValues], type("Valued", (EngineWithValues, ENGINES[name]), {}))
