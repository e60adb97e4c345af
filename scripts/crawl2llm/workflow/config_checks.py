"""What of a config can be refused before anything runs. Errors name the key, its value, and what is allowed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, model_registry, steps
from crawl2llm.chain.config_schema import schema_leaves
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core import pinned_names, secret_masking
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.core.nested_dicts import has_path, lookup
from crawl2llm.filters.decontaminate.steps import searched_tasks
from crawl2llm.filters.language import known_labels
from crawl2llm.filters.quality import scorers
from crawl2llm.stages.align import checks as aligning
from crawl2llm.stages.compress import checks as quantizing
from crawl2llm.stages.compress import gguf_support, quantize_tools
from crawl2llm.stages.evaluate.sandbox import check_sandbox
from crawl2llm.stages.finetune.settings import PairsSettings
from crawl2llm.stages.pretrain.continued_checks import check_continued
from crawl2llm.stages.pretrain.steps import MIXED_BY, source_of_model
from crawl2llm.stages.synthesize import checks as synthesizing
from crawl2llm.stages.tokenize.ready_checks import check_ready, is_ready, tokenizer_path, with_known_vocabulary
from crawl2llm.stages.tokenize.settings import TrainSettings as TokenizerSettings
from crawl2llm.training import checks as training
from crawl2llm.training import gpus, init_checks, mix_shares, model_check, offload, pair_layouts, quantize_aware, sizes
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.float8 import check_precision
from crawl2llm.training.parameters import FAMILIES
from crawl2llm.training.pretraining_settings import MixSettings, PlanSettings, TrainModel, TrainSettings
from crawl2llm.training.published.checks import check_published
from crawl2llm.workflow.published_checks import check_published_uses


def check_config(config: dict[str, Any], variant: str = "main") -> None:
    """Raise ConfigError or InputError for the config of a variant that cannot run."""
    check_secrets(config)
    check_digests(config)
    if "language" in config["filters"]:
        known_labels.check_language_filter(config["language"])
    known_labels.check_by_language(config)
    train = TrainSettings.model_validate(config["pretrain"]["train"])
    training.check_settings(train, train.processes * train.nodes)
    check_published_models(config)
    check_lengths(config)
    check_mix(config)
    check_topics(config)
    check_curve(config)
    check_judge(config)
    check_decontaminated(config)
    check_programs_of_models(config)
    check_tuning(config)
    gguf_support.check_exports(config)
    quantize_tools.check_methods(config)
    quantize_tools.check_shapes(config)
    quantizing.check_compression(config)
    check_continued(config)
    scorers.check_scorers(config)
    ready = TokenizerSettings.model_validate(config["tokenize"]["train"])
    check_ready(ready, Path(f"results/{variant}/tokenize/train"))
    check_ready_exports(config, ready)
    sized_config = with_known_vocabulary(config)
    check_sizes(sized_config)
    model_check.check_model(sized_config)
    pairs = PairsSettings.model_validate(config["finetune"]["pairs"])
    pair_layouts.check_pair_settings(pairs.patterns, pairs.files)
    synthesizing.check_named_steps(config, Path(f"results/{variant}"))
    quantize_aware.check_config(config)
    aligning.check_alignment(config)
    check_start(sized_config, Path(f"results/{variant}/pretrain/train"))
    check_order(config)


def check_programs_of_models(config: dict[str, Any]) -> None:
    """Raise InputError if a public task has programs of models run, and this machine cannot."""
    if names := config["evaluate"]["public"]["presets"]:
        # here, since it imports pyarrow
        from crawl2llm.formats.public_tasks.presets import code_presets

        check_sandbox(code_presets(names))


def check_ready_exports(config: dict[str, Any], settings: TokenizerSettings) -> None:
    """Raise InputError for an export as GGUF of a model whose ready tokenizer llama.cpp does not have."""
    if not is_ready(settings.ready):
        return
    path = tokenizer_path(settings.ready)
    for name in gguf_support.gguf_exports(config):
        if model_registry.is_from_published(config, config["models"][name]["from"]):
            continue
        if path.suffix != ".json" or not gguf_support.pre_tokenizer_name(json.loads(path.read_bytes())):
            raise InputError(
                f"models.{name}.types asks for GGUF, and tokenize.train.from names {path}: llama.cpp has no tokenizer that cuts texts as "
                "this one does; allowed are tokenizer.json of GPT-2's expression, alone or after single digits"
            )


def check_secrets(config: dict[str, Any]) -> None:
    """Raise InputError for a key that should name a secret and seems to hold it: before anything of the config is written."""
    for path, node in schema_leaves():
        if node.get("secret") and has_path(config, path):
            secret_masking.check_name(lookup(config, path), path)


def check_digests(config: dict[str, Any]) -> None:
    """Raise InputError for a file or folder that is named with a digest that is none."""
    for path, node in schema_leaves():
        if node.get("pinned") and has_path(config, path):
            value = lookup(config, path)
            for entry in value if isinstance(value, list) else [value]:
                pinned_names.check_form(entry["path"] if isinstance(entry, dict) else entry or "", path)


def check_sizes(config: dict[str, Any]) -> None:
    """Raise InputError for a size of model that cannot be filled in, and for a GPU that is not known."""
    vocabulary = config["tokenize"]["train"]["vocabulary"]
    model = TrainModel.model_validate(config["pretrain"]["train"]["model"])
    if model.size is not None and isinstance(vocabulary, int):
        sizes.fill_shape(model, vocabulary)
    if config["pretrain"]["plan"]["gpu"] is not None:
        gpus.training_gpu(PlanSettings.model_validate(config["pretrain"]["plan"]), "auto")
        check_precision(config["pretrain"]["train"]["precision"], config["pretrain"]["plan"]["gpu"])


def check_start(config: dict[str, Any], own_result: Path) -> None:
    """Raise ConfigError for a training that starts from a model that does not go with it, or from its `own_result`."""
    start_from = config["pretrain"]["train"]["start_from"]
    if start_from and Path(start_from).resolve().is_relative_to(own_result.resolve()):
        raise ConfigError(
            f"pretrain.train.start_from is {start_from!r}, the result that this run would replace: copy the folder to "
            "another place, and name that"
        )
    init_checks.check_start_from(
        TrainSettings.model_validate(config["pretrain"]["train"]), config["tokenize"]["train"]["vocabulary"]
    )


def check_order(config: dict[str, Any]) -> None:
    """Raise ConfigError for filters in an order in which they cannot be used."""
    if wrong := filter_order.order_problem(config["filters"]):
        raise ConfigError(wrong)


def tuned_models(config: dict[str, Any]) -> list[tuple[str, str]]:
    """(step, model) of every model that is trained on pairs."""
    return [
        (step, name) for step in model_registry.TUNING_STEPS for name in model_registry.models_made_by(config, step)
    ]


def check_published_models(config: dict[str, Any]) -> None:
    """Raise InputError for a published model that is not there, is a result of pretrain.published itself, or is none that a run can
    begin with; headers alone are read.
    """
    for name in model_registry.published_models(config):
        key = f"models.{name}.{'path' if config['models'][name].get('path') else 'hub'}"
        try:
            source = source_of_model(config, name)
        except InputError as error:
            raise InputError(f"{key}: {error}") from None
        folder = source.resolve()
        results = Path("results").resolve()
        if folder.is_relative_to(results) and folder.relative_to(results).parts[1:3] == ("pretrain", "published"):
            raise InputError(
                f"{key} is {str(source)!r}, a result that a run would remove before it makes it anew: copy the folder to another place, "
                "and name that"
            )
        check_published(source, key)
    check_published_uses(config)


def check_lengths(config: dict[str, Any]) -> None:
    """Raise InputError for pairs that are longer than the context that the model is pre-trained with."""
    model = config["pretrain"]["train"]["model"]
    has_context = model["type"] in FAMILIES and isinstance(model["context"], int)
    for step, name in tuned_models(config) if has_context else []:
        length = model_registry.section(config, step, name)["max_length"]
        if length > model["context"] and not model_registry.is_from_published(config, name):
            key = model_registry.key_path(config, step, name, "max_length")
            raise InputError(f"{key} is {length:,}, more than pretrain.train.model.context, {model['context']:,}")


def check_mix(config: dict[str, Any]) -> None:
    """Raise InputError for a mix that no corpus goes with, as far as the config says which groups there are."""
    mix = MixSettings.model_validate(config["pretrain"]["mix"])
    mix_shares.check_phases(mix, config["pretrain"]["train"]["schedule"])
    if not mix.phases:
        return
    if mix.by == "topic" and not config["topics"]["train"]["clusters"]:
        raise InputError(
            "pretrain.mix.by is 'topic', and topics.train.clusters is 0: no step finds topics; say how many there are to be"
        )
    if mix.by in MIXED_BY and not steps.is_used(MIXED_BY[mix.by], config):
        raise InputError(
            f"pretrain.mix.by is {mix.by!r}, which {MIXED_BY[mix.by]} measures, and filters is {config['filters']!r}: add "
            "it there"
        )
    if mix.by == "source":
        names = sorted(source["name"] for source in config["ingest"]["extract"]["sources"])
        mix_shares.check_names(mix, names)


def check_topics(config: dict[str, Any]) -> None:
    """Raise InputError for topics by language in a run that knows no languages."""
    train = config["topics"]["train"]
    if train["clusters"] and train["by"] == "language" and "language" not in config["filters"]:
        raise InputError(
            f"topics.train.by is 'language', which language.score measures, and filters is {config['filters']!r}: add language there, "
            "or set topics.train.by: all"
        )


def check_curve(config: dict[str, Any]) -> None:
    """Raise InputError for a learning curve whose checkpoints the training would remove."""
    curve_every, keep_every = config["evaluate"]["curve"]["every"], config["pretrain"]["train"]["keep_every"]
    if curve_every:
        quantizing.check_kept_steps("evaluate.curve.every", curve_every, "pretrain.train.keep_every", keep_every)


def check_judge(config: dict[str, Any]) -> None:
    """Raise InputError for a judge without answers."""
    judge = config["evaluate"]["judge"]["model"]
    if judge is not None and not config["evaluate"]["generate"]["questions"]:
        raise InputError(
            f"evaluate.judge.model is {judge!r}, and evaluate.generate.questions is 0: there are no answers to judge"
        )


def check_decontaminated(config: dict[str, Any]) -> None:
    """Raise ConfigError for a run that would be evaluated on tasks that its text may hold, unless the config says that it shall be."""
    tasks = searched_tasks(config)
    if (tasks or config["decontaminate"]["index"]["files"]) and filter_order.DECONTAMINATE not in config["filters"]:
        subject = f"evaluate.public.presets is {tasks!r}" if tasks else "decontaminate.index.files is set"
        raise ConfigError(
            f"{subject}, and filters, which is {config['filters']!r}, lacks decontaminate: the training text may hold the questions. Add "
            "it as the last filter, or set decontaminate.index.tasks to [] (and no files) to evaluate without it"
        )


def check_tuning(config: dict[str, Any]) -> None:
    """Raise InputError for a training on pairs whose engine or architecture cannot do what it is asked for."""
    kind = config["pretrain"]["train"]["model"]["type"]
    for step, name in tuned_models(config):
        settings = model_registry.section(config, step, name)
        where = partial(model_registry.section_path, config, step, name)
        training.check_async_checkpoints(
            settings["async_checkpoints"], settings["engine"], where("engine", "async_checkpoints")
        )
        key = partial(model_registry.key_path, config, step, name)
        engine_settings = EngineSettings.of_tuning(settings_class(step).model_validate(settings))
        training.check_fp16(engine_settings, settings["device"], key)
        offload.check_offload(engine_settings, key)
        if "adapter" in settings:
            training.check_adapter(engine_settings, where("engine", "adapter"))
        if step == "finetune.train":
            training.check_packing(settings["packing"], kind, where("packing"))
