"""How fast a training will be, before it runs: tokens/s, MFU, what its time goes to, and which settings would change most.

The operations of a step are counted (count.py), and the times that a GPU takes for them are added up (operations.py, rates.py). One layer
and two are counted: each further layer takes what the second one added. What processes exchange is counted by formula.
benchmarks/predicted_steps.py compares all with what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, cost_estimate, gpus, resource_plan
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate.shape import bytes_of_precision
from crawl2llm.training.measures import flops_per_token, peak_of
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.parameters import count_model_parameters
from crawl2llm.training.prediction import checked_models
from crawl2llm.training.prediction.operations import (
    COMMUNICATION,
    ELEMENTWISE,
    HOST,
    OPTIMIZER,
    Operation,
    step_seconds,
)
from crawl2llm.training.prediction.rates import KEY as KEY
from crawl2llm.training.prediction.rates import Checked, Rates, checked_rates, read_check, sheet_rates
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

# DeepSpeed 0.19.8 took 2 % longer for a step than the engine torch at stage 1, compiled or not (docs/engines.md).
DEEPSPEED_FACTOR = 1.025
# Share of the exchange that nothing hides, and share of the forward and backward pass that hides the rest; assumed.
EXPOSED, HIDING = 0.1, 0.7
LEAST_GAIN = 0.01  # of a change that is shown
MOST_CHANGES = 3
Count = Callable[[int], list[Operation]]  # operations of a step by the number of layers


def whole_step(count: Count, layers: int, rates: Rates, compiled: bool) -> dict[str, float]:
    """Seconds of a step of one micro-batch by part, of a model of so many layers."""
    single, double = (step_seconds(count(number), rates, compiled) for number in (1, 2))
    return {part: single.get(part, 0.0) + (layers - 1) * (double[part] - single.get(part, 0.0)) for part in double}


@dataclass(frozen=True)
class Step:
    """What decides the time of a step beside its operations: micro-batches and processes (all, and of a node), parameters."""

    accumulation: int
    processes: int
    processes_here: int
    parameters: int
    zero_stage: int
    number_bytes: int  # of what is computed with
    reduced_bytes: int  # of a gradient that processes add up


def exchange_seconds(step: Step, rates: Rates) -> float:
    """Seconds of the exchange of a step, were it alone: ring algorithms over the slowest link (NCCL's bus bandwidth).

    Between nodes each GPU has its network card, and a ring goes through each of them. Stage 0: an all-reduce; 1: a gather of weights and a
    scatter of gradients a step; 2: a scatter a micro-batch; 3: two gathers too.
    """
    if step.processes == 1:
        return 0.0
    rate = rates.link
    if step.processes > step.processes_here:
        rate = min(rate, step.processes_here * rates.network) if step.processes_here > 1 else rates.network
    gathers, scatters = {
        0: (0, 2), 1: (1, 1), 2: (1, step.accumulation), 3: (2 * step.accumulation, step.accumulation),
    }[step.zero_stage]  # fmt: skip
    size = gathers * step.number_bytes + scatters * step.reduced_bytes
    return (step.processes - 1) / step.processes * size * step.parameters / rate


def add_up(parts: dict[str, float], step: Step, rates: Rates) -> tuple[float, dict[str, float]]:
    """(seconds of a step, its parts) of several micro-batches and processes. parts: of one micro-batch on one process."""
    optimizer = parts.get(OPTIMIZER, 0.0) / (step.processes if step.zero_stage else 1)
    every = {part: step.accumulation * time for part, time in parts.items() if part not in (OPTIMIZER, HOST)}
    every[ELEMENTWISE] += (
        (step.accumulation - 1) * 12 * step.parameters / rates.contiguous
    )  # gradients are added up, in fp32
    exchange, hidden = exchange_seconds(step, rates), HIDING * sum(every.values())
    every[OPTIMIZER] = optimizer
    every[COMMUNICATION] = max(EXPOSED * exchange, exchange - hidden)
    every = {part: rates.correction * time for part, time in every.items()}
    # The processor starts kernels while the GPU works; where it is slower the GPU waits.
    every[HOST] = max(0.0, step.accumulation * parts.get(HOST, 0.0) - sum(every.values()))
    return sum(every.values()), every


@dataclass
class Predictor:
    """Predicts trainings of one model on one kind of GPU. summary: of pretrain.plan; counted steps are kept."""

    summary: dict[str, Any]
    gpu: gpus.Gpu
    rates: Rates
    counted: dict[tuple[Any, ...], list[Operation]] = field(default_factory=dict)

    @cached_property
    def model(self) -> Any:
        """pretrain.train.model, without `auto`."""
        from crawl2llm.training.parameters import model_of_summary

        return model_of_summary(self.summary["shape"])

    def count(self, train: TrainSettings, layers: int) -> list[Operation]:
        """The operations of one micro-batch of these settings, of a model of so many layers."""
        from crawl2llm.training import model
        from crawl2llm.training.prediction import count

        # What is `auto` there decides no operation.
        settings = replace(EngineSettings.of_pretraining(train), learning_rate=1e-3, hidden_size=self.model.hidden_size)
        key = (
            layers, train.micro_batch, train.activation_checkpointing, train.selective_checkpointing,
            replace(settings, engine="torch", compile_layers=False, pretraining=None),
        )  # fmt: skip
        if key not in self.counted:
            shape = self.model.model_copy(update={"layers": layers})
            config = model.build_config(shape, self.summary["shape"]["vocabulary"], 0, model.SHAPE)
            self.counted[key] = count.count_step(
                config,
                settings,
                train.micro_batch,
                self.model.context,
                train.activation_checkpointing,
                train.selective_checkpointing,
            )
        return self.counted[key]

    def predict(self, train: TrainSettings) -> dict[str, Any]:
        """`tokens_per_second` of all processes, `mfu`, `step_seconds`, and `shares` of the step by part, largest first.

        Raises what counting raises.
        """
        shape, processes = self.summary["shape"], train.processes * train.nodes
        sizes = count_model_parameters(self.model, shape["vocabulary"])
        at_once = train.micro_batch * processes * shape["context"]
        accumulation = resource_plan.count_micro_batches(self.summary, train)
        low = bytes_of_precision(train.precision)
        in_low = train.engine == "deepspeed" and train.reduce_dtype == "auto"
        step = Step(accumulation, processes, train.processes, sizes.total, train.zero_stage, low, low if in_low else 4)
        parts = whole_step(lambda layers: self.count(train, layers), shape["layers"], self.rates, train.compile_layers)
        seconds, every = add_up(parts, step, self.rates)
        seconds *= DEEPSPEED_FACTOR if train.engine == "deepspeed" else 1.0
        tokens = accumulation * at_once / seconds
        flops = flops_per_token(sizes.multiplied, shape["layers"], sizes.width, shape["context"])
        shares = {part: time / sum(every.values()) for part, time in sorted(every.items(), key=lambda item: -item[1])}
        peak = peak_of(self.gpu.name, train.precision)
        assert peak is not None
        return {
            "tokens_per_second": tokens, "mfu": tokens * flops / peak / processes, "step_seconds": seconds,
            "shares": {part: round(share, 4) for part, share in shares.items() if share >= 5e-4},
        }  # fmt: skip


def possible_changes(train: TrainSettings, accumulation: int) -> list[dict[str, Any]]:
    """Changes of pretrain.train that may make it faster; what is set so already is none."""
    changes: list[dict[str, Any]] = []
    if not train.compile_layers:
        changes.append({"compile_layers": True, "loss_chunk": train.loss_chunk or gpus.LOSS_CHUNK})
    if not accumulation % 2:
        changes.append({"micro_batch": 2 * train.micro_batch})
    if train.activation_checkpointing:
        changes.append({"activation_checkpointing": False})
        if not train.selective_checkpointing:
            changes.append({"selective_checkpointing": True})
    if train.zero_stage > 1 or train.zero_stage == 0:
        changes.append({"zero_stage": 1})
    if train.optimizer == "muon" and train.muon_precision == "fp32":
        changes.append({"muon_precision": "bf16"})
    if train.engine == "deepspeed":
        changes.append({"engine": "torch"})
    return changes


def best_changes(
    predictor: Predictor, train: TrainSettings, base: dict[str, Any], fits: Callable[[TrainSettings], bool]
) -> list[dict[str, Any]]:
    """The three changes that gain most, as `{settings, gain}`, among those that the trainer takes and that fit."""
    accumulation = resource_plan.count_micro_batches(predictor.summary, train)
    gains = []
    for settings in possible_changes(train, accumulation):
        changed = train.model_copy(update=settings)
        try:
            checks.check_settings(changed, train.processes * train.nodes)
        except InputError:
            continue
        if not fits(changed):
            continue
        gain = predictor.predict(changed)["tokens_per_second"] / base["tokens_per_second"] - 1
        if gain >= LEAST_GAIN:
            gains.append({"settings": settings, "gain": round(gain, 4)})
    return sorted(gains, key=lambda change: -change["gain"])[:MOST_CHANGES]


def step_correction(checked: Checked, rates: Rates, train: TrainSettings) -> float:
    """Measured over predicted seconds of the step of gpu-check that is most like those of `train`; 1 without one."""

    def settings_of(step: dict[str, Any]) -> TrainSettings:
        usual = {"precision": "bf16", "engine": "torch", "learning_rate": 3e-4}
        return TrainSettings.model_validate(usual | step["settings"])

    def likeness(step: dict[str, Any]) -> tuple[int, ...]:
        other = settings_of(step)
        return (
            other.compile_layers == train.compile_layers, (other.zero_stage == 0) == (train.zero_stage == 0),
            bool(other.loss_chunk) == bool(train.loss_chunk), -step["micro_batch"],
        )  # fmt: skip

    if not checked.steps:
        return 1.0
    from crawl2llm.training.prediction import count

    measured = max(checked.steps, key=likeness)
    like, micro_batch = settings_of(measured), measured["micro_batch"]
    context, layers = checked_models.CONTEXT, checked_models.SIZES["1B"][1]

    def count_layers(number: int) -> list[Operation]:
        config = checked_models.llama_config("1B", checked_models.VOCABULARY, context, num_hidden_layers=number)
        return count.count_step(config, EngineSettings.of_pretraining(like), micro_batch, context)

    parts = whole_step(count_layers, layers, rates, like.compile_layers)
    step = Step(1, 1, 1, measured["parameters"], like.zero_stage, 2, 4)
    return micro_batch * context / measured["tokens_per_second"] / add_up(parts, step, rates)[0]


def predict_training(
    summary: dict[str, Any],
    train: TrainSettings,
    plan_settings: PlanSettings,
    gpu: gpus.Gpu,
    fits: Callable[[TrainSettings], bool],
) -> dict[str, Any]:
    """What `Predictor.predict` says of a training; tokens/s and MFU `compiled` and `eager`; `changes`; `basis`; `of`, what it is of.

    summary: of pretrain.plan; fits: whether settings have room on the GPU. Raises InputError for pretrain.plan.gpu_check, for a GPU
    without a data sheet and for what is not predicted, and whatever counting raises.
    """
    rates = sheet_rates(gpu)
    if rates is None or peak_of(gpu.name, train.precision) is None:
        raise InputError(f"no rates of {gpus.with_article(gpu.name)} are known for {train.precision}")
    if Degrees.of_settings(train):
        raise InputError("trainings with pretrain.train.parallel are not predicted")
    if plan_settings.gpu_check:
        path = Path(plan_settings.gpu_check)
        checked = read_check(path, gpu)
        rates = checked_rates(rates, checked, path)
        rates = replace(rates, correction=step_correction(checked, rates, train))
    predictor = Predictor(summary, gpu, rates)
    base = predictor.predict(train)
    both = {}
    for name, compiled in (("compiled", True), ("eager", False)):
        predicted = predictor.predict(train.model_copy(update={"compile_layers": compiled}))
        both[name] = {key: predicted[key] for key in ("tokens_per_second", "mfu")}
    return {
        **base, **both, "basis": rates.basis, "changes": best_changes(predictor, train, base, fits),
        "of": cost_estimate.speed_key(summary, train, plan_settings, gpu),
    }  # fmt: skip
