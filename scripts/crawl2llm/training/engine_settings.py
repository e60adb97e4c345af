"""What engines, schedules and estimates read of the settings of a training, whichever step's they are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawl2llm.core.settings import Settings
    from crawl2llm.training.pretraining_settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The keys that an engine knows, by their names in the config.

    What has a default here, some step has no key for: it trains by the default of pretrain.train, with a learning rate that ends at 0.
    hidden_size: of pretrain.train.model. pretraining: the whole settings of pretrain.train if these are of it.
    """

    engine: str
    zero_stage: int
    precision: str
    learning_rate: float
    schedule: str
    warmup: float
    weight_decay: float
    beta1: float
    beta2: float
    gradient_clipping: float
    min_learning_rate_ratio: float = 0.0
    decay: float = 0.2
    shard_over: str = "all"
    epsilon: float = 1e-8
    optimizer: str = "adamw"
    muon_learning_rate: float = 0.02
    muon_momentum: float = 0.95
    muon_precision: str = "fp32"
    base_width: int | None = None
    hidden_size: int = 0
    z_loss: float = 0.0
    router_z_loss: float = 0.0
    router_bias_rate: float = 0.0
    reduce_dtype: str = "auto"
    loss_chunk: int = 0
    compile_layers: bool = False
    autocast: bool = True
    document_masking: bool = False
    ema: float | None = None
    loss_scale_power: int = 16
    loss_scale_window: int = 1000
    offload_optimizer: str = "none"
    offload_parameters: str = "none"
    offload_path: str | None = None
    adapter: str = "none"
    adapter_rank: int = 16
    adapter_alpha: float = 32
    adapter_targets: tuple[str, ...] = ()
    quantize_aware: str = "none"
    quantize_aware_group_size: int = 128
    pretraining: TrainSettings | None = None

    @staticmethod
    def of_pretraining(train: TrainSettings) -> EngineSettings:
        """Those of pretrain.train; keys that are `auto` are taken as they are."""
        values = _values_of(train)
        return EngineSettings(**values, hidden_size=train.model.hidden_size, pretraining=train)  # type: ignore[arg-type]

    @staticmethod
    def of_tuning(settings: Settings) -> EngineSettings:
        """Those of another step that trains."""
        return EngineSettings(**_values_of(settings))  # type: ignore[arg-type]


def _values_of(settings: Settings) -> dict[str, object]:
    """The values of the keys that the settings have among those of EngineSettings."""
    names = {field.name for field in fields(EngineSettings)} & type(settings).model_fields.keys()
    return {name: getattr(settings, name) for name in sorted(names)}
