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

from crawl2llm.core.manifest import canonical_json, digest, pretty_json, write_atomically

LIBRARIES = {  # module: distribution, of the libraries that compute what a step writes
    "accelerate": "accelerate",
    "bitsandbytes": "bitsandbytes",
    "brotli": "brotli",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "endec": "endec",
    "fastwarc": "fastwarc",
    "fasttext": "fasttext",
    "lm_eval": "lm_eval",
    "numpy": "numpy",
    "peft": "peft",
    "pyarrow": "pyarrow",
    "re2": "google-re2",
    "regex": "regex",
    "resiliparse": "resiliparse",
    "rouge_score": "rouge_score",
    "sacrebleu": "sacrebleu",
    "scipy": "scipy",
    "sentencepiece": "sentencepiece",
    "tiktoken": "tiktoken",
    "tldextract": "tldextract",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "transformers": "transformers",
    "trl": "trl",
    "webencodings": "webencodings",
    "xxhash": "xxhash",
    "zstandard": "zstandard",
}


RENEWED = "renewed"  # in a record: the digest of the fingerprint that its manifest had before this one (chain/early_cutoff.py)
UNIMPORTED: set[str] = set()  # distributions that a step uses without importing them, such as a model in a wheel


def path_of(manifest: Path) -> Path:
    """The path of a manifest's record."""
    return manifest.with_name(manifest.name.removesuffix("manifest.json") + "run.json")


@cache
def installed_version(distribution: str) -> str:
    """The version that is installed here; "" where none is."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def loaded_versions() -> dict[str, str]:
    """Python's version, and those of the libraries that this process has loaded."""
    loaded = {name: installed_version(name) for module, name in LIBRARIES.items() if module in sys.modules}
    return {
        "python": platform.python_version(),
        **loaded,
        **{name: installed_version(name) for name in sorted(UNIMPORTED)},
    }


def processor_name() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def device_entry() -> dict[str, str]:
    """{"device": "cuda" or "cpu"}: what this process has computed on; empty if it did not load torch."""
    torch = sys.modules.get("torch")
    return {"device": "cuda" if torch.cuda.is_initialized() else "cpu"} if torch else {}


def write(manifest: Path, fingerprint: str, more: dict[str, Any]) -> None:
    """Write the record beside `manifest`. `more`: what the step notes of its own run."""
    machine = {"host": platform.node(), "processor": processor_name(), "system": platform.platform()}
    body = {
        "fingerprint": json.loads(fingerprint),
        "versions": loaded_versions(),
        "machine": machine,
        **device_entry(),
        **more,
    }
    write_atomically(path_of(manifest), pretty_json(body))


def update_fingerprint(manifest: Path, fingerprint: str, **more: str) -> None:
    """Note in the record another fingerprint, under which the same result came out, and `more`; all else stays."""
    old = {key: value for key, value in read(manifest).items() if key != RENEWED}
    write_atomically(path_of(manifest), pretty_json({**old, **more, "fingerprint": json.loads(fingerprint)}))


def accept_fingerprint(manifest: Path, fingerprint: str, entry: dict[str, Any]) -> None:
    """Note in the record that its result counts as made under `fingerprint` (commands/accept.py)."""
    old = {key: value for key, value in read(manifest).items() if key != RENEWED}
    body = {**old, "fingerprint": json.loads(fingerprint), "accepted": [*old.get("accepted", []), entry]}
    write_atomically(path_of(manifest), pretty_json(body))


def accepted_entries(manifest: Path, fingerprint: str) -> list[dict[str, Any]]:
    """What was accepted of a manifest whose fingerprint has this digest, oldest first.

    Without the last, where the record names another fingerprint: it was noted, and its manifest was never written.
    """
    content = read(manifest)
    entries: list[dict[str, Any]] = content.get("accepted", [])
    return entries if digest(canonical_json(content.get("fingerprint"))) == fingerprint else entries[:-1]


def read(manifest: Path) -> dict[str, Any]:
    """The record beside `manifest`; empty if there is none, or a damaged one."""
    return parse_record(record_bytes(path_of(manifest)))


def record_bytes(path: Path) -> bytes:
    """The bytes of a record; none if it is not there."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def parse_record(text: bytes) -> dict[str, Any]:
    """The record that these bytes are; empty if they are none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
