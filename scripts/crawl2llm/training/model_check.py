"""Whether transformers builds the model of pretrain.train, as the plan asks it: built, cut and tried in a process of its own.

The answer is kept by what is asked, the code that answers and the version of transformers, so that a plan takes the time of the
process, some seconds, only after an edit of the model. Nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json
from crawl2llm.core.plan_cache import Cache
from crawl2llm.core.root import CODE, ROOT
from crawl2llm.core.settings import AUTO
from crawl2llm.training import auto, parallel, sizes
from crawl2llm.training.pretraining_settings import TrainSettings

PROGRAM = "crawl2llm.training.causality"
SOURCES = tuple(
    f"scripts/crawl2llm/training/{name}.py"
    for name in ("causality", "model", "config_names", "parallel", "mixture", "routers", "initial")
)
CACHE = Path(".snakemake/models.json")
SECONDS = 300.0  # that the process may take: imports from a slow file system
VOCABULARY = 1024  # where the tokenizer decides it
MOST_MICRO_BATCHES = 1 << 30  # micro-batches of a step, where the corpus decides them
_cache = Cache(CACHE, shared=ROOT / "scripts/crawl2llm/training/__pycache__" / CACHE.name)


def ask_of(config: dict[str, Any]) -> dict[str, Any]:
    """What is asked of the model of a config: its keys, with sizes for what is `auto`, which the corpus decides, and the degrees.

    Raises InputError if no sizes fit those that are set.
    """
    train = TrainSettings.model_validate(config["pretrain"]["train"])
    vocabulary = config["tokenize"]["train"]["vocabulary"]
    vocabulary = vocabulary if isinstance(vocabulary, int) else VOCABULARY
    settings = train.model
    open_keys = sorted(key for key, value in settings if value == AUTO)
    if settings.size is not None:
        settings = sizes.fill_shape(settings, vocabulary)
    unknown = AUTO in (settings.layers, settings.heads, settings.kv_heads)
    model = auto.resolve_shape(settings, 0)
    degrees = parallel.Degrees.of_settings(train)
    if settings.context == AUTO:
        model = model.model_copy(update={"context": auto.table_row(0).context * degrees.sequence})
    cut = asdict(degrees) if degrees and not unknown else {}
    return {
        "model": model.model_dump(),
        "auto": open_keys,
        "vocabulary": vocabulary,
        "parallel": cut,
        "accumulation": MOST_MICRO_BATCHES,
        "routers": [train.engine, train.router_z_loss, train.router_bias_rate],
    }


def model_problems(asks: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong with each model that is asked about; "" if nothing is known to be, and where torch or transformers is not installed."""
    try:
        versions = [version("transformers"), version("torch")]
    except PackageNotFoundError:  # the environment of data steps; the trainer builds the model
        return ["" for _ in asks]
    code = [hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in SOURCES]
    marks = {hashlib.sha256(canonical_json([ask, versions, code]).encode()).hexdigest(): ask for ask in asks}
    if new := {mark: ask for mark, ask in marks.items() if mark not in _cache.values}:
        for mark, problem in zip(new, _ask_transformers(list(new.values())), strict=False):
            _cache.keep_value(mark, problem)
    return [_cache.values.get(mark, "") for mark in marks]


def _ask_transformers(asks: list[dict[str, Any]]) -> list[str]:
    paths = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM], input=json.dumps(asks), capture_output=True, text=True, env=environment,
            timeout=SECONDS, check=True,
        )  # fmt: skip
        return list(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("whether the model can be built was not looked at: %s ended with: %s", PROGRAM, error)
        return []


def prefetch_answers(configs: Iterable[dict[str, Any]]) -> None:
    """Ask about the models of several configs at once, whose faults `check_model` then says."""
    asks = []
    for config in configs:
        try:
            asks.append(ask_of(config))
        except InputError:
            continue  # which `check_model` says
    model_problems(asks)


def check_model(config: dict[str, Any]) -> None:
    """InputError for a model of pretrain.train that transformers does not build, that cannot be cut so, or that is not causal."""
    for why in model_problems([ask_of(config)]):
        if why:
            raise InputError(why)


def save_answers() -> None:
    """Keep the answers for the next plan."""
    _cache.save()
