"""Which scorers the filter quality has, by the step that runs them, and what of them can be refused before anything runs.

Without any other, the classifier that the run trains (`trained`) scores alone, and the steps here do not run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.core import pinned_names
from crawl2llm.core.errors import InputError

TRAINED = "trained"  # the classifier of quality.train
ANY_LANGUAGE = "any"  # the language of documents whose language no step knows
LM = "kenlm"  # the language models of quality.lm
BUCKETS = ("head", "middle", "tail")
PRETRAINED_STEPS = ("fasttext", "transformers", "kenlm")  # steps with models by path
# Columns of the sidecars beside the scores.
RESERVED_NAMES = (
    "id", "source", "curated", "language", "bucket", "quantile", "score", "failed", "value", "threshold", "detail",
)  # fmt: skip
SUFFIXES = (".arpa.bin", ".bin", ".binary", ".arpa")  # of KenLM's files, after the language
TOKENIZERS = ("tokenizer.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "vocab.json")


def scorer_names(config: dict[str, Any], step: str) -> list[str]:
    """The names of the scorers that a step of PRETRAINED_STEPS has."""
    names = [entry["name"] for entry in config["quality"][step]["models"]]
    return [*names, LM] if step == "kenlm" and config["quality"]["lm"]["enabled"] else names


def other_scorers(config: dict[str, Any]) -> list[str]:
    """The names of all scorers but the classifier that the run trains."""
    return [name for step in PRETRAINED_STEPS for name in scorer_names(config, step)]


def trains_classifier(config: dict[str, Any]) -> bool:
    """Whether the run trains a classifier: if it has no other scorer, or if it scores beside them."""
    return config["quality"]["calibrate"]["trained"] or not other_scorers(config)


def check_scorers(config: dict[str, Any]) -> None:
    """Raise InputError, naming key, value and what is allowed, for scorers that cannot work."""
    if "quality" not in config["filters"]:
        return
    quality = config["quality"]
    names = other_scorers(config)
    for name in names:
        if names.count(name) > 1 or name == TRAINED or name in RESERVED_NAMES:
            lm_name = f" or {LM}, which quality.lm.enabled adds" if quality["lm"]["enabled"] else ""
            raise InputError(
                f"quality: a scorer is called {name!r}, which is taken; names must be unique and different from "
                f"{', '.join((TRAINED, *RESERVED_NAMES))}{lm_name}"
            )
    for entry in quality["fasttext"]["models"]:
        if ("label" in entry) == ("values" in entry):
            raise InputError(
                f"quality.fasttext.models: {entry['name']} has {'both' if 'label' in entry else 'neither'} of label "
                f"and values; give one of them: the label whose probability is the score, or a number per label, for "
                f"their expected value"
            )
    for entry in quality["transformers"]["models"]:
        _check_classifier(entry)
    for entry in quality["kenlm"]["models"]:
        if not language_model_files(Path(pinned_names.split_digest(entry["path"])[0])):
            raise InputError(
                f"quality.kenlm.models: {entry['name']} has the path {entry['path']!r}, a folder without a language model; "
                f"it holds {', '.join('<language>' + suffix for suffix in SUFFIXES)} as cc_net's, such as en.arpa.bin"
            )
    if not names and not quality["calibrate"]["trained"]:
        raise InputError(
            "quality.calibrate.trained is False, and there is no other scorer: allowed is True, or a scorer"
        )
    everyone = [*([TRAINED] if trains_classifier(config) else []), *names]
    references = [("quality.calibrate.weights", name) for name in quality["calibrate"]["weights"]]
    references += [
        ("quality.combine.require", condition["scorer"]) for part in quality["combine"]["require"] for condition in part
    ]
    if quality["calibrate"]["bucket_of"] is not None:
        references.append(("quality.calibrate.bucket_of", quality["calibrate"]["bucket_of"]))
    for key, name in references:
        if name not in everyone:
            raise InputError(
                f"{key} names {name!r}, which is no scorer of this run; its scorers are {', '.join(everyone)}"
            )
    _check_conditions(config)


def _check_conditions(config: dict[str, Any]) -> None:
    requirements = config["quality"]["combine"]["require"]
    if requirements and not other_scorers(config):
        raise InputError(
            "quality.combine.require is set, and the classifier that the run trains is the only scorer: there is nothing to "
            "combine; quality.select.method threshold compares its score with quality.select.threshold"
        )
    for condition in (each for part in requirements for each in part):
        measures = [key for key in ("min", "max", "quantile_min", "buckets") if key in condition]
        if len(measures) != 1:
            raise InputError(
                f"quality.combine.require: the condition {condition!r} has {', '.join(measures) or 'no measure'}; "
                f"give one of min, max, quantile_min and buckets"
            )
        if "buckets" in condition and condition["scorer"] != bucket_scorer(config):
            raise InputError(
                f"quality.combine.require: the condition {condition!r} asks for buckets, and those are of "
                f"{bucket_scorer(config) or 'no scorer'}: quality.calibrate.bucket_of names another"
            )


def bucket_scorer(config: dict[str, Any]) -> str | None:
    """The scorer whose values head, middle and tail are cut by: `bucket_of`, or the first KenLM scorer by name; None without one."""
    configured = config["quality"]["calibrate"]["bucket_of"]
    return configured or min(scorer_names(config, "kenlm"), default=None)


def language_model_files(folder: Path) -> dict[str, Path]:
    """The language models in a folder by language, as cc_net names them: en.arpa.bin, or en.arpa, en.bin, en.binary."""
    paths: dict[str, Path] = {}
    for suffix in SUFFIXES:
        for path in sorted(folder.glob(f"*{suffix}")):
            if "." not in path.name.removesuffix(suffix):
                paths.setdefault(path.name.removesuffix(suffix), path)
    return paths


def _check_classifier(entry: dict[str, Any]) -> None:
    """Raise InputError for a folder that holds no model that transformers can load without running code of the model's own."""
    folder = Path(pinned_names.split_digest(entry["path"])[0])
    subject = f"quality.transformers.models: {entry['name']} has the path {entry['path']!r}"
    if not (folder / "config.json").is_file():
        raise InputError(f"{subject}, which holds no config.json: give the folder of a model as transformers saves it")
    if not list(folder.glob("*.safetensors")):
        raise InputError(
            f"{subject}, which holds no *.safetensors; other formats of weights may run code, and are not read"
        )
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise InputError(f"{subject}, which holds no tokenizer: one of {', '.join(TOKENIZERS)}")
    try:
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{subject}, whose config.json cannot be read: {error}") from error
    if facts.get("auto_map"):
        raise InputError(f"{subject}, whose config.json asks for custom code (auto_map): such a model is not run")
    if "label" in entry and "values" in entry:
        raise InputError(
            f"{subject}, with both label and values: give one of them, or neither if the model has one output"
        )
