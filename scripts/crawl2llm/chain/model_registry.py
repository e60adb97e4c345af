"""The models of a run: `base`, which pretrain.train makes, published ones, and those that the config's `models` has made from others.

`models: {name: {from: the name of a model, step: the step that makes it, …}}`; any other key of an entry is one of that step's own
section, and holds for this model alone. A model's result is that of its step's task of the same name. An entry with neither is a
published model, `{path: …}` or `{hub: …, revision: …}`: a root like `base`, with a tokenizer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from crawl2llm.core.nested_dicts import lookup, merge_dicts, nest_value

BASE = "base"
BASE_STEP = "pretrain.train"  # makes it, in its only task
PUBLISHED_STEP = "pretrain.published"  # makes the folder of a model that somebody else trained
CONTINUE_STEP = "pretrain.continue"  # trains a model on, on the corpus
ENCODE_STEP = "tokenize.encode"  # the corpus in the run's own tokens
REENCODE_STEP = "tokenize.reencode"  # the same in those of a published model, in a task for each
ENCODERS = (ENCODE_STEP, REENCODE_STEP)
# Evaluated beside them: a model of the shape of `base` with random weights, which no step makes.
UNTRAINED = "untrained"
EXPORT_STEP = "compress.export"  # makes files to give away of a model, which is no other model
HUB_DATASET = re.compile(r"^@?hf://datasets/([^/@]+/[^/@]+)")
ALIGN_STEP = "align.train"
BY_PREFERENCE = ("dpo", "kto")  # its methods that read no rewards
PPO = "ppo"  # its method with a model of values
REWARD_STEP = "align.reward"  # makes models that score answers: no language models, and not evaluated
TUNING_STEPS = ("finetune.train", REWARD_STEP, ALIGN_STEP)  # train on pairs
DISTIL_STEP = "compress.distil"  # trains a model by what another one, its teacher, says of the text
TEACH_STEP = "compress.teach"  # writes what a teacher says
QUANTIZE_STEP = "compress.quantize"  # rounds the weights of a model
CALIBRATED_METHODS = ("gptq", "awq")  # its methods that read text
MERGE_STEP = "compress.merge"  # averages the weights of models
# The keys of a step's section that name further models that its models are made from, beside `from`: one name, or a list.
OTHER_PARENTS = {DISTIL_STEP: ("teacher",), MERGE_STEP: ("with", "over")}
# Models of these steps are no parents: quantized ones can only be exported, reward models not even that.
CHILDLESS_STEPS = (QUANTIZE_STEP, REWARD_STEP)
# The steps that make a model: the first makes `base`, each other one the models that the config's `models` has made by it.
MAKERS = (
    BASE_STEP, PUBLISHED_STEP, CONTINUE_STEP, "finetune.train", REWARD_STEP, "align.train", "compress.prune", DISTIL_STEP, MERGE_STEP,
    QUANTIZE_STEP,
)  # fmt: skip
# Those whose models are evaluated, exported and served:
LANGUAGE_MODELS = tuple(step for step in MAKERS if step != REWARD_STEP)
ENTRY_KEYS = ("from", "step")  # the keys of an entry that are not of its step's section
Config = dict[str, Any]


def language_models(config: Config) -> list[str]:
    """Every language model, in the order of the registry; `base` is the first, if it is trained. What is exported is a model of another
    name.
    """
    return [
        *base_of_run(config),
        *(name for name, entry in config["models"].items() if entry["step"] not in (EXPORT_STEP, REWARD_STEP)),
    ]


def evaluated_models(config: Config) -> list[str]:
    """Every model that is evaluated: those of the registry and, where `evaluate.model.untrained` says so, UNTRAINED."""
    return [*language_models(config), *_untrained_model(config)]


def _untrained_model(config: Config) -> list[str]:
    return [UNTRAINED] if config["evaluate"]["model"]["untrained"] and trains_base(config) else []


def trains_base(config: Config) -> bool:
    """Whether the run trains `base`, or begins with published models alone."""
    return bool(config["pretrain"]["train"]["enabled"])


def base_of_run(config: Config) -> list[str]:
    """[`base`] if the run trains it."""
    return [BASE] if trains_base(config) else []


def names_in_variants(variants: dict[str, Config]) -> list[str]:
    """Every model of a run with variants, each once."""
    return list(
        dict.fromkeys(name for config in variants.values() for name in (*evaluated_models(config), *config["models"]))
    )


def models_made_by(config: Config, step: str) -> list[str]:
    """The models that a step makes, in the order of the registry."""
    return [name for name, entry in config["models"].items() if entry["step"] == step]


def models_from_base(config: Config, step: str) -> list[str]:
    """Those of them that come from `base`, whose shape the config knows."""
    return [name for name in models_made_by(config, step) if not is_from_published(config, name)]


def has_models_of(step: str, config: Config) -> bool:
    """Whether the registry has a model of a step."""
    return bool(models_made_by(config, step))


def lineage(config: Config, model: str) -> list[str]:
    """The models that stand on an export's card: those that it is made from, the nearest first, and UNTRAINED where that has the shape of
    the last of them and is evaluated.
    """
    untrained = [] if is_from_published(config, model) else _untrained_model(config)
    return [*ancestors(config, model), *untrained]


def parent(config: Config, model: str) -> str | None:
    """The model that another is made from; None of a root. KeyError for a name that the registry lacks."""
    if model == UNTRAINED:
        return BASE
    above = None if model == BASE else config["models"][model]["from"]
    return above and str(above)


def root(config: Config, model: str) -> str:
    """`base` or the published model that a model comes from, perhaps by way of others: the one whose tokenizer it has."""
    return BASE if model == UNTRAINED else own_line(config, model)[-1]


def own_line(config: Config, model: str) -> list[str]:
    """A model, and those that it has its shape and tokenizer from: that of its `from`, and so on up to a root, as far as they are known."""
    models, line = config["models"], [model]
    while line[-1] in models and (above := models[line[-1]]["from"]) and above not in line:
        line.append(above)
    return line


def is_from_published(config: Config, model: str) -> bool:
    """Whether a model is, or comes from, a published one."""
    return root(config, model) in published_models(config)


def published_models(config: Config) -> list[str]:
    """The published models, in the order of the registry."""
    return models_made_by(config, PUBLISHED_STEP)


def tokens_step(config: Config, model: str) -> str:
    """The step that encodes the corpus in the tokens of a model."""
    return REENCODE_STEP if is_from_published(config, model) else ENCODE_STEP


def is_encoder_for(models: Iterable[str], need: str, config: Config) -> bool:
    """Whether a step that is read encodes the corpus in the tokens of one of the models; True of a step that does not encode it."""
    return need not in ENCODERS or need in {tokens_step(config, model) for model in models}


def parents(config: Config, model: str) -> list[str]:
    """All models that one is made from directly, that of `from` first; none of a root, and of a name that the registry lacks."""
    first = config["models"].get(model, {}).get("from")
    return list(dict.fromkeys([*([first] if first else []), *other_parents(config, model)]))


def other_parents(config: Config, model: str) -> list[str]:
    """The further models that one is made from, in the order of OTHER_PARENTS; a name that the registry lacks is among them."""
    return list(dict.fromkeys(name for _, name in _other_parents_by_key(config, model)))


def _other_parents_by_key(config: Config, model: str) -> Iterator[tuple[str, str]]:
    """(key, name) of each further model that one is made from."""
    step = config["models"].get(model, {}).get("step")
    for key in OTHER_PARENTS.get(step, ()):
        names = section(config, step, model)[key]
        yield from ((key, name) for name in ([names] if isinstance(names, str) else names or ()))


def making_task(config: Config, model: str) -> tuple[str, str]:
    """(step, task) that makes a model, or that one whose shape it has. KeyError for a name that the registry lacks."""
    return (BASE_STEP, "") if model in (BASE, UNTRAINED) else (str(config["models"][model]["step"]), model)


def model_rows(config: Config) -> list[dict[str, Any]]:
    """Every model as {name, from, step}, in the order of the registry, reward models too: what the report shows."""
    names = [*base_of_run(config), *(name for name, entry in config["models"].items() if entry["step"] != EXPORT_STEP)]
    return [{"name": name, "from": parent(config, name), "step": making_task(config, name)[0]} for name in names]


def step_keys(entry: Config) -> Config:
    """The keys of an entry that are of its step's section."""
    return {key: value for key, value in entry.items() if key not in ENTRY_KEYS}


def config_for_model(config: Config, step: str, model: str) -> Config:
    """The config as a task of a step sees it: with the model's own keys in the step's section, where the step makes that model."""
    entry = config["models"].get(model)
    if not entry or entry["step"] != step:
        return config
    model_keys = step_keys(entry)
    return merge_dicts(config, nest_value(step, model_keys)) if model_keys else config


def section(config: Config, step: str, model: str) -> Config:
    """The section of a step as a task of it sees it; see `config_for_model`."""
    return dict(lookup(config_for_model(config, step, model), step))


def section_path(config: Config, step: str, name: str, *keys: str) -> str:
    """The part of a config that names `keys` of a model: its entry of `models` where that has any of them, else its step's section."""
    return f"models.{name}" if {*keys} & config["models"][name].keys() else step


def key_path(config: Config, step: str, name: str, key: str) -> str:
    """The `key` of a model's step as the config names it; see `section_path`."""
    return f"{section_path(config, step, name, key)}.{key}"


def reward_models(config: Config, model: str) -> list[str]:
    """The models of align.reward that score the answers of a model while align.train makes it, by the names that its config has."""
    entry = config["models"].get(model)
    if not entry or entry["step"] != ALIGN_STEP:
        return []
    settings = section(config, ALIGN_STEP, model)
    rewards = settings["rewards"] if settings["method"] not in BY_PREFERENCE else []
    return list(
        dict.fromkeys(reward["name"] for reward in rewards if reward.get("reward") == "model" and "name" in reward)
    )


def teachers(config: Config, model: str) -> list[str]:
    """The model that compress.distil makes a model by; none of another model."""
    return other_parents(config, model) if model in models_made_by(config, DISTIL_STEP) else []


def reads_written_teacher(config: Config, model: str) -> bool:
    """Whether a model of compress.distil is made by what compress.teach wrote; of no model, "", whether any is."""
    names = [model] if model else models_made_by(config, DISTIL_STEP)
    settings = [section(config, DISTIL_STEP, name) for name in names]
    return any(each["top_k"] and each["text_share"] < 1 for each in settings)


def written_teachers(config: Config) -> list[str]:
    """The models of which compress.teach writes what they say, in the order of the registry."""
    wanted = {
        name
        for student in models_made_by(config, DISTIL_STEP)
        if reads_written_teacher(config, student)
        for name in teachers(config, student)
    }
    return [name for name in language_models(config) if name in wanted]


def is_calibrated(config: dict[str, Any], model: str) -> bool:
    """Whether a model of compress.quantize is calibrated on text; of no model, "", whether any is."""
    names = [model] if model else models_made_by(config, QUANTIZE_STEP)
    return any(section(config, QUANTIZE_STEP, name)["method"] in CALIBRATED_METHODS for name in names)


def ancestors(config: Config, model: str) -> list[str]:
    """The models that one is made from, the nearest first: each after those that are made from it. As far as they are known; a model of a
    cycle is among its own.
    """
    above: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        for other in reversed(parents(config, name)):
            if other not in seen:
                seen.add(other)
                visit(other)
                above.append(other)

    visit(model)
    return above[::-1]


def with_root_keys(models: Config) -> Config:
    """The registry without models that a layer takes away by null, and `from` and `step` written out where an entry leaves them out."""
    return {
        name: {"from": None, "step": PUBLISHED_STEP, **entry} for name, entry in models.items() if entry is not None
    }


def revision_problem(place: str, hub: str | None, revision: str | None) -> str | None:
    """What is wrong with the `revision` beside `hub` at a place of the config: one of them without the other."""
    if bool(hub) == bool(revision):
        return None
    return f"{place}.revision is {revision!r}; with hub it is the commit, 40 hexadecimal digits, and with path there is none"


def root_problems(name: str, entry: Config) -> Iterator[str]:
    """A line for what is wrong with the entry of a published model."""
    places = [key for key in ("path", "hub") if entry.get(key)]
    if entry["from"]:
        yield (
            f"models.{name}.from is {entry['from']!r}, and the entry names no step that makes the model: set models.{name}.step; of a "
            "published model, which is made from none, leave from out"
        )
    elif len(places) != 1:
        yield (
            f"models.{name} has {' and '.join(places) or 'neither path nor hub'}: a published model has one of path (a folder or a .gguf "
            "file) and hub; any other has from and step"
        )
    elif problem := revision_problem(f"models.{name}", entry.get("hub"), entry.get("revision")):
        yield problem


def card_facts(config: Config) -> Config:
    """What the config says for an export's card: `sources` with licence and, as the Hub calls it, data set; `languages` that are kept."""
    sources = {}
    for source in config["ingest"]["extract"]["sources"]:
        hub = dict.fromkeys(name for path in source.get("paths", []) for name in HUB_DATASET.findall(path))
        sources[source["name"]] = {"licence": source.get("licence"), "datasets": list(hub)}
    languages = config["language"]["select"]["languages"] if "language" in config["filters"] else None
    return {"sources": sources, "kept_languages": languages}


def model_problems(config: Config) -> Iterator[str]:
    """A line for each model that is made from none: from one that is not there, from itself by way of others, from an export, or from one
    of CHILDLESS_STEPS: quantized models can only be exported, reward models not even that. And for a published one without its place.

    config: complete.
    """
    models = config["models"]
    reported: set[str] = set()
    roots = [BASE] if trains_base(config) else []
    if not roots and not any(entry["step"] == PUBLISHED_STEP for entry in models.values()):
        yield "pretrain.train.enabled is false, and models has no published model to begin with, an entry with path or hub"
    for name, entry in models.items():
        if entry["step"] == PUBLISHED_STEP:
            yield from root_problems(name, entry)
            continue
        above = ancestors(config, name)
        none = (EXPORT_STEP, REWARD_STEP) if entry["step"] == EXPORT_STEP else (EXPORT_STEP, *CHILDLESS_STEPS)
        possible = {*roots, *(candidate for candidate in models if models[candidate]["step"] not in none)}
        if name in reported:
            continue
        reported |= set(above) if name in above else set()
        texts = [(f"models.{name}.from is", entry["from"])]
        texts += [
            (f"{key_path(config, entry['step'], name, key)} names", other)
            for key, other in _other_parents_by_key(config, name)
        ]
        for text, other in texts:
            circular = name in (other, *ancestors(config, other))
            if other in possible and not circular:
                continue
            allowed = [own for own in models if own in possible - {name} and name not in ancestors(config, own)]
            why = "the model itself" if other == name else _why_no_parent(models, other, circular)
            parent_text = "not set" if other is None else f"{other!r}, {why}"
            yield f"{text} {parent_text}; allowed: {', '.join([*roots, *allowed]) or 'none is there'}"


def _why_no_parent(models: Config, name: str, circular: bool) -> str:
    """Why no model can be made from the one of this name. circular: it is made from that model itself."""
    if circular:
        return "which is made from it"
    if name == BASE:
        return "which pretrain.train.enabled false leaves out"
    if name not in models:
        return "which is no model"
    if (step := models[name]["step"]) == EXPORT_STEP:
        return "which is exported, not trained"
    return f"which {step} makes, and no other model is made from one of those"


def schema_with_models(schema: Config, models: Any) -> Config:
    """The schema with each model's entry spelled out: beside `from` and `step`, what the section of its step has.

    An entry that names no step that makes models stays as the schema has it, which refuses it.
    """
    node = schema["properties"]["models"]
    general, entries = node["additionalProperties"], {}
    steps = general["properties"]["step"]["enum"]
    for name, entry in models.items() if isinstance(models, dict) else ():
        step = entry.get("step", PUBLISHED_STEP) if isinstance(entry, dict) else None
        if step is not None and step in steps:
            section = lookup(schema, "properties." + step.replace(".", ".properties."))
            own_keys = {**general["properties"], **section["properties"]}
            entries[name] = {**general, "properties": own_keys, "additionalProperties": False}
    return {**schema, "properties": {**schema["properties"], "models": {**node, "properties": entries}}}
