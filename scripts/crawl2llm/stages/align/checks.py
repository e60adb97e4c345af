"""What of an alignment can be refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.stages.align import endpoint, rewards
from crawl2llm.stages.align.layouts import LEARNS_FROM, PREFERENCE
from crawl2llm.stages.align.settings import PairsSettings, RewardEntry, TrainSettings

STEP = model_registry.ALIGN_STEP
RESULTS = "results"  # of a run, in its folder
# Types of models of which there is no reward model; others are refused when it starts.
UNSCORED = ("mamba", "mamba2", "mixtral", "olmoe")
# Keys of align.train that ppo alone reads.
PPO_KEYS = ("passes", "gamma", "gae_lambda", "clip", "value_clip", "value_coefficient", "missing_end_penalty")


def check_alignment(config: dict[str, Any]) -> None:
    """InputError, naming key, value and what is allowed, for a model of align.train that cannot be made."""
    rewarding = model_registry.models_made_by(config, model_registry.REWARD_STEP)
    if rewarding or model_registry.models_made_by(config, STEP):
        check_answering(config)
    pairs = PairsSettings.model_validate(config["align"]["pairs"])
    if rewarding:
        check_files(pairs, f"models.{rewarding[0]}.step is {model_registry.REWARD_STEP!r}", [PREFERENCE])
    kind = config["pretrain"]["train"]["model"]["type"]
    if kind in UNSCORED and model_registry.models_from_base(config, model_registry.REWARD_STEP):
        raise InputError(
            f"models.{rewarding[0]}.step is {model_registry.REWARD_STEP!r}, which takes no pretrain.train.model.type {kind!r}: "
            "transformers has no such model that scores texts, or it is a mixture of experts"
        )
    for name in model_registry.models_made_by(config, STEP):
        settings, key = train_settings(config, name), partial(model_registry.key_path, config, STEP, name)
        check_chunks(settings, key("loss_chunk"))
        check_ppo(settings, key)
        if (
            settings.method == model_registry.PPO
            and kind in UNSCORED
            and not model_registry.is_from_published(config, name)
        ):
            raise InputError(
                f"{key('method')} is {model_registry.PPO!r}, which takes no pretrain.train.model.type {kind!r}: "
                "transformers has no such model that gives tokens values, or it is a mixture of experts"
            )
        if settings.method in model_registry.BY_PREFERENCE:
            check_files(
                pairs,
                f"{key('method')} is {settings.method!r}",
                LEARNS_FROM[settings.method],
                ", or a method with rewards: grpo, rloo, reinforce, ppo",
            )
            continue
        check_rewards(settings, key)
        rewards.check_entries(settings.rewards, key("rewards"))
        check_manifests(settings.rewards, key("rewards"))
        check_reward_models(config, name, key("rewards"))
        if settings.max_new_tokens >= settings.max_length:
            raise InputError(
                f"{key('max_new_tokens')} is {settings.max_new_tokens}; allowed is less than {key('max_length')}, "
                f"{settings.max_length}"
            )


def train_settings(config: dict[str, Any], model: str) -> TrainSettings:
    """The settings of align.train for a model of it."""
    return TrainSettings.model_validate(model_registry.section(config, STEP, model))


def check_files(pairs: PairsSettings, why: str, layouts: Sequence[str], more: str = "") -> None:
    """InputError for a model of preferences, `why`, of a run without any, or whose files are all of other layouts than `layouts`.

    pairs: settings of align.pairs. more: what else could be done.
    """
    if pairs.from_:  # what it answers makes preferences, whatever the files are
        return
    file_layouts = [entry.layout or PREFERENCE for entry in pairs.files]
    if file_layouts and not {*file_layouts} & {*layouts}:
        file_list = ", ".join(
            f"{entry.path} ({layout})" for entry, layout in zip(pairs.files, file_layouts, strict=True)
        )
        raise InputError(
            f"{why}, which takes rows of layout {' or '.join(layouts)}, and align.pairs.files has none: {file_list}; give a file of "
            f"those, or a model in align.pairs.from{more}"
        )
    if not file_layouts:
        raise InputError(
            f"{why}, and align.pairs.files is []: give a file of preferences, or a model in align.pairs.from{more}"
        )


def check_rewards(settings: TrainSettings, key: Callable[[str], str]) -> None:
    """InputError for a method by rewards that has none, or too few answers to compare. key: a key of align.train as the config names it."""
    method = settings.method
    if not settings.rewards:
        raise InputError(
            f"{key('rewards')} is []; method {method!r} needs one or more: exact, format, length, model, a function"
        )
    if settings.generations < 2 and method not in ("reinforce", model_registry.PPO):
        raise InputError(
            f"{key('generations')} is {settings.generations}; method {method!r} compares answers to a prompt: 2 or more"
        )


def check_chunks(settings: TrainSettings, key: str) -> None:
    """InputError for logits in chunks where a method or an engine has none."""
    rows, method = settings.loss_chunk, settings.method
    if rows and method not in model_registry.BY_PREFERENCE:
        raise InputError(
            f"{key} is {rows}, which methods {' and '.join(model_registry.BY_PREFERENCE)} take; method is {method!r}: set it to 0"
        )
    if rows and settings.engine == "deepspeed" and settings.zero_stage == 3:
        raise InputError(
            f"{key} is {rows}, and zero_stage 3 of engine deepspeed gathers the head once a pass: set it to 0, or engine to torch"
        )


def check_ppo(settings: TrainSettings, key: Callable[[str], str]) -> None:
    """InputError for an adapter trained by ppo, and for a key of ppo's that is set for another method. key: as for `check_rewards`."""
    method, defaults = settings.method, TrainSettings()
    for name in PPO_KEYS if method != model_registry.PPO else ():
        value, default = getattr(settings, name), getattr(defaults, name)
        if value != default:
            raise InputError(
                f"{key(name)} is {value}, which method {model_registry.PPO} takes; method is {method!r}: leave it at "
                f"{default}"
            )
    if method == model_registry.PPO and settings.adapter != "none":
        raise InputError(
            f"{key('adapter')} is {settings.adapter!r}, and method {model_registry.PPO} trains a model of values, whole, "
            "beside the model: set it to none, or the method to grpo, rloo or reinforce"
        )


def check_answering(config: dict[str, Any]) -> None:
    """InputError for a model of align.pairs.from that is none, or that is aligned itself: it would wait for its own preferences."""
    pairs, models = PairsSettings.model_validate(config["align"]["pairs"]), config["models"]
    if not (name := pairs.from_):
        return
    aligned = set(model_registry.models_made_by(config, STEP))
    allowed = [
        other
        for other in model_registry.language_models(config)
        if not aligned & {other, *model_registry.ancestors(config, other)}
    ]
    if name not in allowed:
        why = "which is aligned, or made from such a model" if name in models else "which is no model"
        raise InputError(f"align.pairs.from is {name!r}, {why}; allowed: {', '.join(allowed)}")
    if not pairs.rewards:
        raise InputError(
            f"align.pairs.rewards is []; answers of {name!r} need one or more: exact, format, length, model, endpoint, a function"
        )
    rewards.check_entries(pairs.rewards, "align.pairs.rewards", endpoint=True)
    check_manifests(pairs.rewards, "align.pairs.rewards")
    judged = [number for number, entry in enumerate(pairs.rewards) if entry.reward == rewards.ENDPOINT]
    if judged:
        endpoint.check_judge(pairs.judge, f"align.pairs.rewards[{judged[0]}]")
    elif (model := pairs.judge.model) is not None:
        raise InputError(
            f"{endpoint.KEY}.model is {model!r}, and no entry of align.pairs.rewards is {{reward: endpoint}}: nothing would ask it"
        )
    for number, entry in enumerate(pairs.rewards):
        if entry.name is not None:
            raise InputError(
                f"align.pairs.rewards[{number}].name is {entry.name!r}: a reward model of this run learns from align.pairs itself; give "
                "the `manifest` of one that another run has made"
            )


def check_reward_models(config: dict[str, Any], model: str, key: str) -> None:
    """InputError for a reward model that is none, or that is made from the model whose answers it is to judge."""
    models, reward_models = config["models"], model_registry.models_made_by(config, model_registry.REWARD_STEP)
    for number, entry in enumerate(train_settings(config, model).rewards):
        if (name := entry.name) is None:
            continue
        allowed = [reward_model for reward_model in reward_models if not depends_on(config, reward_model, model)]
        if name not in allowed:
            if name in reward_models:
                why = f"which waits for {model} itself"
            else:
                why = "which align.reward does not make" if name in models else "which is no model"
            raise InputError(
                f"{key}[{number}].name is {name!r}, {why}; allowed: {', '.join(allowed) or 'none is there'}"
            )


def check_manifests(entries: Sequence[RewardEntry], key: str) -> None:
    """InputError for the manifest of a reward model of this very run, which may be made again after it has judged, or of another step."""
    for number, entry in enumerate(entries):
        if (setting := entry.manifest) is None:
            continue
        prefix, path = f"{key}[{number}].manifest is {setting!r}", Path(setting)
        if path.resolve().is_relative_to(Path(RESULTS).resolve()):
            raise InputError(
                f"{prefix}, a result of this run: name the model in `name` (align.train alone), or copy another run's model elsewhere"
            )
        with suppress(ManifestError):  # one that is not there, or broken, is refused by what reads it
            if (step := Manifest.read_unchecked(path).step) != model_registry.REWARD_STEP:
                raise InputError(f"{prefix}, a manifest of {step!r}; it must be one of {model_registry.REWARD_STEP!r}")


def depends_on(config: dict[str, Any], name: str, model: str) -> bool:
    """Whether a model is made from `model`, by way of parents and of reward models."""
    seen, pending = set[str](), [name]
    while pending:
        current = pending.pop()
        if current == model:
            return True
        if current in config["models"] and current not in seen:
            seen.add(current)
            pending += [
                *model_registry.parents(config, current),
                *model_registry.reward_models(config, current),
            ]
    return False
