"""The settings of the stage pretrain."""

from crawl2llm.core.settings import Commit, NonEmpty, Settings, section, setting
from crawl2llm.training.pretraining_settings import MixSettings, PlanSettings, TrainSettings


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


class PretrainSettings(Settings):
    """Pre-training of a causal language model from scratch."""

    mix: MixSettings = section()
    pack: PackSettings = section()
    rung: RungSettings = section()
    halve: HalveSettings = section()
    plan: PlanSettings = section()
    train: TrainSettings = section()
    published: PublishedSettings = section()
