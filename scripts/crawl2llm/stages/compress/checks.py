"""What of this stage is refused before anything runs, beside what stages/compress/quantize_tools.py refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.quantize_tools import TYPES
from crawl2llm.stages.compress.settings import MergeSettings
from crawl2llm.training.parameters import FAMILIES

# The linear layers of a decoder layer of TYPES; the test asks transformers.
PARTS = (*(f"self_attn.{part}_proj" for part in "qkvo"), *(f"mlp.{part}_proj" for part in ("gate", "up", "down")))
PRUNE_STEP = "compress.prune"
CUT_KEYS = ("layers", "heads", "neurons", "calibration_tokens", "seed")  # of it, that decide which parts stay
# Steps that train on text: the key that says on how many tokens.
TEXT_TOKENS = {
    model_registry.CONTINUE_STEP: "tokens",
    model_registry.DISTIL_STEP: "tokens",
    PRUNE_STEP: "retrain_tokens",
}
CHANGED_LOGITS = ("gemma2",)  # types that bound their logits after the head
MOST = 1000  # decoder layers, where their number is not known yet


def linear_layer_names(model: dict[str, Any]) -> list[str]:
    """The names of the linear layers that could be quantized of a model with the settings of pretrain.train.model; [] where not known."""
    if model["type"] not in TYPES:
        return []
    count = model["layers"] if isinstance(model["layers"], int) else MOST
    return [f"model.layers.{number}.{part}" for number in range(count) for part in PARTS]


def check_compression(config: dict[str, Any]) -> None:
    """InputError for a model that a step of this stage cannot make, by the checks below."""
    check_roots(config)
    check_new_tokens(config)
    check_pruned(config)
    check_distilled(config)
    check_merged(config)
    check_kept(config)


def check_roots(config: dict[str, Any]) -> None:
    """InputError for a model that is made from models of several roots, which have tokenizers of their own."""
    for name in config["models"]:
        root = model_registry.root(config, name)
        for other in model_registry.other_parents(config, name):
            if (other_root := model_registry.root(config, other)) != root:
                raise InputError(
                    f"models.{name} is made from {other!r}, which comes from {other_root!r}, and by models.{name}.from it comes from "
                    f"{root!r}: both have to have one tokenizer"
                )


def check_new_tokens(config: dict[str, Any]) -> None:
    """InputError for a model that is made from models of one root of which only one has a token of pretrain.continue.new_tokens.

    A student that learns from the text alone reads no teacher.
    """
    for name in config["models"]:
        others = model_registry.other_parents(config, name)
        if name in model_registry.models_made_by(config, model_registry.DISTIL_STEP):
            others = (
                others if model_registry.section(config, model_registry.DISTIL_STEP, name)["text_share"] < 1 else []
            )
        parent = model_registry.parent(config, name) or name
        parent_tokens = new_tokens_of(config, parent)
        for other in others:
            other_tokens = new_tokens_of(config, other)
            tokens = ([token for _, token in each] for each in (parent_tokens, other_tokens))
            at = next((at for at, pair in enumerate(zip_longest(*tokens)) if pair[0] != pair[1]), None)
            if at is None:
                continue
            has, lacks, (key, token) = (
                (parent, other, parent_tokens[at]) if at < len(parent_tokens) else (other, parent, other_tokens[at])
            )
            raise InputError(
                f"models.{name} is made from {parent!r} and {other!r}, and by {key} {has!r} has the token {token!r}, which {lacks!r} has "
                "not at that place: both have to have one tokenizer"
            )


def new_tokens_of(config: dict[str, Any], model: str) -> list[tuple[str, str]]:
    """(key, token) of each token that a model has beside those of its root, in the order of their numbers."""
    step = model_registry.CONTINUE_STEP
    return [
        (model_registry.key_path(config, step, name, "new_tokens"), token)
        for name in reversed(model_registry.own_line(config, model))
        if model_registry.making_task(config, name)[0] == step
        for token in model_registry.section(config, step, name)["new_tokens"]
    ]


def check_pruned(config: dict[str, Any]) -> None:
    """InputError for a method of compress.prune that does not take models of pretrain.train.model.type.

    Of a mixture, whose experts transformers holds in one array a layer, `magnitude` and `2:4` would take attention alone, and say nothing.
    """
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_from_base(config, PRUNE_STEP):
        method = model_registry.section(config, PRUNE_STEP, name)["method"]
        key = model_registry.key_path(config, PRUNE_STEP, name, "method")
        if method == "structured" and kind not in TYPES:
            raise InputError(
                f"{key} is 'structured', which takes models of pretrain.train.model.type {', '.join(TYPES)}, "
                f"and it is {kind!r}"
            )
        if kind in FAMILIES and FAMILIES[kind].experts:
            raise InputError(
                f"{key} is {method!r}, and pretrain.train.model.type {kind!r}, a mixture of experts, whose matrices are in no linear "
                f"layer: most of its weights would stay as they are; prune a model of another type, such as {', '.join(TYPES)}"
            )


def check_distilled(config: dict[str, Any]) -> None:
    """InputError for models of compress.distil whose logits are not those of their heads, and for a student who would read what
    compress.teach does not write.
    """
    step, teach = model_registry.DISTIL_STEP, config["compress"]["teach"]
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_made_by(config, step):
        settings = model_registry.section(config, step, name)
        if kind in CHANGED_LOGITS and not model_registry.is_from_published(config, name):
            raise InputError(
                f"models.{name}.step is {step!r}, which does not take models of pretrain.train.model.type {kind!r}: they change their "
                "logits after the head"
            )
        if not model_registry.reads_written_teacher(config, name):
            continue
        limited = bool(teach["tokens"])
        same = {"temperature": teach["temperature"], **({"seed": teach["seed"]} if limited else {})}
        read = math.ceil(settings["tokens"] / settings["batch_tokens"]) * settings["batch_tokens"]
        refused = [
            *(
                (key, f"with top_k only compress.teach.{key}, {value}")
                for key, value in same.items()
                if settings[key] != value
            ),
            *([("top_k", _at_most("top_k", teach))] if settings["top_k"] > teach["top_k"] else []),
            *(
                [("tokens", f"in whole steps, here {read}, {_at_most('tokens', teach)}")]
                if read > teach["tokens"] > 0
                else []
            ),
        ]
        for key, allowed in refused:
            path = model_registry.key_path(config, step, name, key)
            raise InputError(f"{path} is {settings[key]}; allowed: {allowed}")


def _at_most(key: str, teach: dict[str, Any]) -> str:
    return f"with top_k at most compress.teach.{key}, {teach[key]}"


def check_merged(config: dict[str, Any]) -> None:
    """InputError for keys of compress.merge that do not go together, and for models of which the config tells that their shapes differ."""
    for name in model_registry.models_made_by(config, model_registry.MERGE_STEP):
        settings = MergeSettings.model_validate(model_registry.section(config, model_registry.MERGE_STEP, name))
        key = partial(model_registry.key_path, config, model_registry.MERGE_STEP, name)
        check_merged_names(config, name, settings, key)
        if settings.weights is not None:
            check_merge_weights(settings, key)
        if settings.method == "checkpoints":
            check_merged_checkpoints(config, name, settings, key)
        cuts = {other: cuts_of(config, other) for other in model_registry.parents(config, name)}
        whole, cut = ([other for other in cuts if bool(cuts[other]) == smaller] for smaller in (False, True))
        if whole and cut:
            raise InputError(
                f"models.{name} merges {whole[0]!r} and {cut[0]!r}, which {PRUNE_STEP} has made smaller: models have to be of one shape"
            )
        for other in cut[1:]:
            if cuts_made(config, other) != cuts_made(config, cut[0]):
                raise InputError(
                    f"models.{name} merges {cut[0]!r} and {other!r}, of which {PRUNE_STEP} has kept other layers, heads or neurons (in "
                    f"{cuts[cut[0]][0]!r} and {cuts[other][0]!r}): their weights do not stand for the same; merge models of one cut"
                )


def check_merged_names(config: dict[str, Any], name: str, settings: MergeSettings, key: Callable[[str], str]) -> None:
    """InputError for more or fewer models than a method takes, and for an `over` that is not above all of them. key: paths of its keys."""
    method, number = f"{key('method')} is {settings.method!r}", len(settings.with_)
    numbers = {"checkpoints": (number == 0, "none"), "slerp": (number == 1, "one model")}
    fits, takes = numbers.get(settings.method, (number > 0, "one model or more"))
    if not fits:
        raise InputError(
            f"models.{name}.with is {settings.with_ or 'not set'}, and {method}, which takes {takes} there"
        )
    if (settings.over is None) == (settings.method in ("task_arithmetic", "ties")):
        takes = "needs the model that all are made from" if settings.over is None else "takes none"
        raise InputError(f"{key('over')} is {settings.over!r}, and {method}, which {takes}")
    merged = [config["models"][name]["from"], *settings.with_]
    if len({*merged}) < len(merged):
        raise InputError(
            f"{key('with')} is {settings.with_}, and models.{name}.from is one of them: name each model once"
        )
    for other in merged if settings.over else ():
        if settings.over not in (above := model_registry.ancestors(config, other)):
            raise InputError(
                f"{key('over')} is {settings.over!r}, which {other!r} is not made from; allowed: {', '.join(above) or 'none'}"
            )


def check_merge_weights(settings: MergeSettings, key: Callable[[str], str]) -> None:
    """InputError for weights of a method that takes none, for another number of them than of models, and for those that have no mean."""
    weights, number = settings.weights or [], 1 + len(settings.with_)
    if settings.method in ("slerp", "checkpoints"):
        raise InputError(f"{key('weights')} is {weights}, and {key('method')} is {settings.method!r}, which takes none")
    if len(weights) != number:
        raise InputError(
            f"{key('weights')} is {weights}, and {number} models are merged: one for from, then one for each of with"
        )
    if settings.method == "average" and sum(weights) <= 0:
        raise InputError(f"{key('weights')} is {weights}, whose sum is not above 0: there is no mean")


def check_merged_checkpoints(
    config: dict[str, Any], name: str, settings: MergeSettings, key: Callable[[str], str]
) -> None:
    """InputError for checkpoints that no training keeps."""
    parent = config["models"][name]["from"]
    step, task = model_registry.making_task(config, parent)
    training = model_registry.section(config, step, task)
    allowed = f"allowed with {key('method')} 'checkpoints': a model that a training of all of its weights makes"
    if "keep_every" not in training:
        raise InputError(
            f"models.{name}.from is {parent!r}, which {step} makes, and it keeps no checkpoints; {allowed}"
        )
    if training.get("adapter", "none") != "none" or training.get("method") == model_registry.PPO:
        extra = "an adapter" if training.get("adapter", "none") != "none" else "a model of values"
        raise InputError(f"models.{name}.from is {parent!r}, whose checkpoints are of {extra}; {allowed}")
    if not (keep_every := training["keep_every"]) or settings.every % keep_every:
        keeping = model_registry.key_path(config, step, task, "keep_every") if task else f"{step}.keep_every"
        raise InputError(
            f"{key('every')} is {settings.every}, and {keeping}, which is {keep_every}, keeps no checkpoint of these steps: set it to "
            f"{settings.every} or to a divisor (a placement key: by itself it reruns nothing)"
        )
    if step in TEXT_TOKENS:
        steps = math.ceil(training[TEXT_TOKENS[step]] / training["batch_tokens"])
        if (have := 1 + max(0, steps - 1) // settings.every) < settings.last:
            raise InputError(
                f"{key('last')} is {settings.last}, and {parent!r}, which trains {steps:,} steps, has {have:,} checkpoints "
                f"{settings.every} steps apart, its last model among them"
            )


def cuts_of(config: dict[str, Any], model: str) -> list[str]:
    """Those of a model and of what it has its shape from that compress.prune has made smaller."""
    return [
        name
        for name in model_registry.own_line(config, model)
        if model_registry.making_task(config, name)[0] == PRUNE_STEP
        and model_registry.section(config, PRUNE_STEP, name)["method"] == "structured"
    ]


def cuts_made(config: dict[str, Any], model: str) -> list[tuple[str | None, dict[str, Any]]]:
    """What decides which parts a model has kept: of each cut, the nearest first, the model that was cut, and how.

    What was retrained afterwards, and how, does not.
    """
    return [
        (
            model_registry.parent(config, cut),
            {key: model_registry.section(config, PRUNE_STEP, cut)[key] for key in CUT_KEYS},
        )
        for cut in cuts_of(config, model)
    ]


def check_kept(config: dict[str, Any]) -> None:
    """InputError for a `keep` of compress.quantize that is no regular expression, or that no layer is called by.

    Names are known of TYPES, and not of a model that was pruned, which may have fewer layers, nor of a published one.
    """
    layer_names = linear_layer_names(config["pretrain"]["train"]["model"])
    for name in model_registry.models_made_by(config, model_registry.QUANTIZE_STEP):
        key = model_registry.key_path(config, model_registry.QUANTIZE_STEP, name, "keep")
        other_layers = model_registry.is_from_published(config, name) or PRUNE_STEP in (
            model_registry.making_task(config, other)[0] for other in model_registry.own_line(config, name)
        )
        for pattern in model_registry.section(config, model_registry.QUANTIZE_STEP, name)["keep"]:
            try:
                expression = re.compile(pattern)
            except re.error as wrong:
                raise InputError(f"{key} has {pattern!r}, which is not a regular expression: {wrong}") from wrong
            if layer_names and not other_layers and not any(map(expression.search, layer_names)):
                raise InputError(
                    f"{key} has {pattern!r}, which no linear layer is called by; they are called {', '.join(layer_names[: len(PARTS)])}, …"
                )
