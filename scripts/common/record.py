"""The record beside a manifest, `[<shard>.]run.json`: the whole fingerprint, and what does not decide bytes.

Nothing depends on it. It holds the settings, code and steps above by name, so that an old result can be compared with today's
plan, the versions of the libraries that were loaded, the machine, and what the step itself notes, such as its GPU. Seconds
and memory are in Snakemake's benchmark file of the task.
"""

from __future__ import annotations

import json
import platform
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.common.manifest import pretty, write_atomically

__tracked__ = False  # notes, never decides: see scripts/common/fingerprint.py

LIBRARIES = {  # module: distribution, of the libraries that compute what a step writes
    "accelerate": "accelerate",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "fastwarc": "fastwarc",
    "fasttext": "fasttext",
    "lm_eval": "lm_eval",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "resiliparse": "resiliparse",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "transformers": "transformers",
    "trl": "trl",
    "xxhash": "xxhash",
}


def beside(manifest: Path) -> Path:
    """Where the record of a manifest lies."""
    return manifest.with_name(manifest.name.removesuffix("manifest.json") + "run.json")


@cache
def version(distribution: str) -> str:
    """The version that is installed here; "" where none is."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Python's version, and those of the libraries that this process has loaded."""
    loaded = {name: version(name) for module, name in LIBRARIES.items() if module in sys.modules}
    return {"python": platform.python_version(), **loaded}


def processor() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write(manifest: Path, fingerprint: str, more: dict[str, Any]) -> None:
    """Write the record beside `manifest`. `more`: what the step notes of its own run."""
    machine = {"host": platform.node(), "processor": processor(), "system": platform.platform()}
    body = {"fingerprint": json.loads(fingerprint), "versions": versions(), "machine": machine, **more}
    write_atomically(beside(manifest), pretty(body))


def read(manifest: Path) -> dict[str, Any]:
    """The record beside `manifest`; empty where there is none, or a damaged one."""
    try:
        found = json.loads(beside(manifest).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
