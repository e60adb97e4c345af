"""The settings of the stage pretrain."""

from crawl2llm.core.settings import Settings, section
from crawl2llm.training.pretraining_settings import MixSettings, PlanSettings, TrainSettings


class PackSettings(Settings):
    """The windows that documents are packed into, with pretrain.train.packing best_fit. Its settings are those of pretrain.train."""


class RungSettings(Settings):
    """The training of a variant up to a rung of sweep.halving, and its loss there. Its settings are those of pretrain.train."""


class HalveSettings(Settings):
    """Who goes on after each rung of sweep.halving, and why the others stop."""


class PretrainSettings(Settings):
    """Pre-training of a causal language model from scratch."""

    mix: MixSettings = section()
    pack: PackSettings = section()
    rung: RungSettings = section()
    halve: HalveSettings = section()
    plan: PlanSettings = section()
    train: TrainSettings = section()
