"""A model as GGUF files, which llama.cpp makes and runs, compared with transformers on held-out text.

Its converter refuses a tokenizer that it does not know. Ours is GPT-2's byte-level BPE, with or without digits cut off before it:
llama.cpp has both, under the names of other models (gguf_support.PRE). That its tokens are ours is checked on texts, and a file
with others is refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.core.programs import run_program
from crawl2llm.core.root import CODE
from crawl2llm.stages.compress import gguf_support, llama_worker
from crawl2llm.stages.compress.gguf_reference import LogitReference
from crawl2llm.stages.compress.settings import ExportSettings

UNQUANTIZED = ("f32", "f16")  # what is not quantized, and has to be the same model
BLOCK = 256  # weights of a block of k-quants: a row has a whole number of them, or another type


def export_gguf(
    folder: Path,
    out: Path,
    name: str,
    types: Sequence[str],
    tokens: Iterable[Path],
    settings: ExportSettings,
    manifest: Manifest,
) -> list[dict[str, Any]]:
    """Make `<name>-<TYPE>.gguf` in `out` of the model in `folder`; what each has been measured to be, in the order of types.

    tokens: manifests of what encoded the corpus in the model's tokens. Raises InputError if the tools are not there, where llama.cpp does
    not take the model, where it cuts texts into other tokens, and where a file that is not quantized has other logits.
    """
    home = gguf_support.TOOLS.folder()
    if why := gguf_support.TOOLS.problem(home):
        raise InputError(why)
    pre = pre_tokenizer(folder)
    results = []
    with scratch_folder(out.with_name(f".{out.name}.gguf")) as place:
        reference = LogitReference(folder, tokens, settings, place)
        source = place / "f32.gguf"
        files = {gguf_type: out / file_name(name, gguf_type) for gguf_type in types} | {"f32": source}
        for gguf_type in [*(["f32"] if set(types) - {"f16"} else []), *(["f16"] if "f16" in types else [])]:
            model = {"converter": str(home / "llama.cpp"), "pre": pre, "model": str(folder), "name": name}
            run_job(home, place, do="convert", **model, type=gguf_type, file=str(files[gguf_type]))
            log.info("converted to %s", gguf_type)
        for gguf_type in types:
            file = files[gguf_type]
            if gguf_type not in UNQUANTIZED:
                quantized = {"file": str(file), "type": gguf_type, "threads": settings.threads}
                run_job(home, place, do="quantize", source=str(source), **quantized)
            measured = run_job(home, place, do="measure", file=str(file), **reference.job)
            reference.check_tokens(measured["tokens"])
            facts = gguf_facts(
                gguf_type, file_name(name, gguf_type), file.stat().st_size, measured, reference, settings
            )
            bits, difference = facts["bits_per_byte"], facts["mean_difference"]
            log.info("%s: %.4f bits a byte; logits differ by %.2g", gguf_type, bits, difference)
            results.append(facts)
        if "f32" in types:
            source.rename(out / file_name(name, "f32"))
    manifest.run["tools"] = {"llama_cpp_python": gguf_support.VERSION}
    return results


def file_name(name: str, gguf_type: str) -> str:
    """`sft-Q4_K_M.gguf`, as the Hub and llama.cpp expect it."""
    return f"{name}-{gguf_type.upper()}.gguf"


def pre_tokenizer(folder: Path) -> str:
    """llama.cpp's name for the way that a model's tokenizer cuts texts. Raises InputError for one that llama.cpp does not have."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if pre := gguf_support.pre_tokenizer_name(tokenizer):
        return pre
    step = tokenizer["pre_tokenizer"] or {}
    kinds = [each.get("type") for each in step.get("pretokenizers", [step])]
    raise InputError(
        f"{folder / 'tokenizer.json'}: llama.cpp has no tokenizer that cuts texts as this one does ({tokenizer['model']['type']}, {kinds})"
    )


def gguf_facts(
    gguf_type: str, file: str, size: int, measured: dict[str, Any], reference: LogitReference, settings: ExportSettings
) -> dict[str, Any]:
    """What a GGUF file was measured to be. Raises InputError for one that is not quantized and has other logits than the model."""
    if gguf_type in UNQUANTIZED and not measured["mean"] <= settings.max_difference:
        raise InputError(
            f"{file}: its logits by llama.cpp differ from those by transformers by {measured['mean']:.4g} in the mean (at most "
            f"{measured['max']:.4g}); compress.export.max_difference allows {settings.max_difference}: it is not the same model"
        )
    notes = []
    wide = [row for row in measured["rows"] if row % BLOCK]
    if gguf_type.endswith(("_k_m", "_k_s")) and wide:
        other_types = ", ".join(f"{number} {kind.lower()}" for kind, number in sorted(measured["types"].items()))
        notes.append(
            f"{gguf_type} packs blocks of {BLOCK} weights of a row, and rows here have {', '.join(map(str, wide))}: those matrices have "
            f"other types, which are larger ({other_types})"
        )
    return {
        "type": gguf_type,
        "file": file,
        "bytes": size,
        "bits_per_weight": round(size * 8 / reference.parameters, 4),
        "bits_per_byte": round(reference.bits_of(sum(measured["nats"])), 6),
        "transformers_bits_per_byte": round(reference.bits, 6),
        "documents": reference.documents,
        "tokens": reference.scored,
        "compared": measured["compared"],
        "mean_difference": round(measured["mean"], 6),
        "max_difference": round(measured["max"], 6),
        "root_mean_square": round(measured["root"], 6),
        "same_argmax": round(measured["same"], 6),
        "tensors": measured["types"],
        "notes": notes,
    }


def run_job(home: Path, place: Path, **job: Any) -> dict[str, Any]:
    """Do a job (stages/compress/llama_worker.py) in a process that has the tools of `home`; place: a folder for its files.

    Raises InputError with its last words where it fails.
    """
    job_file, result_file = place / "job.json", place / "result.json"
    job_file.write_text(json.dumps({**job, "to": str(result_file)}), encoding="utf-8")
    path = os.pathsep.join(
        [str(home / "site"), str(home / "llama.cpp/gguf-py"), str(CODE), os.environ.get("PYTHONPATH", "")]
    )
    # Threads that wait must not spin: on a machine with other work they would take its cores and wait the longer.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", llama_worker.__name__, str(job_file)]
    run_program(command, f"llama.cpp, {job['do']} {job.get('type', '')}", env=environment)
    return dict(json.loads(result_file.read_text(encoding="utf-8")))
