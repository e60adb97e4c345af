"""The settings of the stage pretrain."""

from typing import Any

from crawl2llm.core.setting_types import Share
from crawl2llm.core.settings import Commit, NonEmpty, Number, Settings, section, setting
from crawl2llm.training.pretraining_settings import MixSettings, PlanSettings, TrainSettings
from crawl2llm.training.shared_settings import TextTrainingSettings


class PackSettings(Settings):
    """The windows that documents are packed into, with pretrain.train.packing best_fit. Its settings are those of pretrain.train."""


class RungSettings(Settings):
    """The training of a variant up to a rung of sweep.halving, and its loss there. Its settings are those of pretrain.train."""


class HalveSettings(Settings):
    """Who goes on after each rung of sweep.halving, and why the others stop."""


class PublishedSettings(Settings):
    """A model that somebody else trained, in the form of this run's own. What decides it is its content, and not where it lies."""

    path: NonEmpty | None = setting(
        None,
        "A folder as transformers has it (config.json, safetensors, tokenizer.json), or a .gguf file. Of an entry of `models`.",
        placement=True,
    )
    hub: NonEmpty | None = setting(
        None,
        "In place of `path`: the name on the Hugging Face hub of a model that `crawl2llm fetch-model` has fetched.",
        placement=True,
    )
    revision: Commit | None = setting(None, "Of `hub`: the commit.", placement=True)


class ContinueSettings(TextTrainingSettings):
    """Trains a model of the run on, on the corpus in its own tokens."""

    tokens: int = setting(100000000, "Training tokens, in whole steps.", ge=1, le=1000000000000000)
    batch_tokens: int = setting(
        524288,
        "Tokens of an optimizer step over all processes, a multiple of the context.",
        ge=8,
        le=1000000000,
    )
    learning_rate: Number = setting(
        0.0003,
        "Peak learning rate of AdamW.",
        gt=0,
        le=1,
    )
    decay: Share = setting(0.2, "Share of the steps over which schedule wsd falls.")
    min_learning_rate_ratio: Share = setting(0.1, "Last learning rate as a share of the peak.")
    shares: dict[str, Share] = setting(
        {},
        "Share of the tokens by source; sources that are not named have what is left, by their tokens.",
        source="arXiv:2403.08763 replays 0.05",
    )
    context: int | None = setting(
        None, "Tokens of a window; null: the model's context. A larger number becomes its context.", ge=8, le=1048576
    )
    rope_parameters: dict[str, Any] | None = setting(
        None,
        "RoPE's, as transformers has them; null, and base, share and original context where not named: the parent's.",
    )
    new_tokens: list[NonEmpty] = setting(
        [],
        "Special tokens to add, which begin as the mean of the old ones.",
        source="https://nlp.stanford.edu/~johnhew/vocab-expansion.html",
        unique=True,
    )


class PretrainSettings(Settings):
    """Pre-training of a causal language model, from scratch or on from another one."""

    mix: MixSettings = section()
    pack: PackSettings = section()
    rung: RungSettings = section()
    halve: HalveSettings = section()
    plan: PlanSettings = section()
    train: TrainSettings = section()
    published: PublishedSettings = section()
    continue_: ContinueSettings = section(alias="continue")
