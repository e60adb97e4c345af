"""Export a model: a folder to give away, or GGUF files for llama.cpp, and a card that tells how it came about.

Writes `<model>/`: weights, configuration, tokenizer and chat template, as they are, for `safetensors`, with the token that ends an answer
among those of generation_config.json; `<model>-<TYPE>.gguf` for each other type, by llama.cpp's converter and quantizer. Each GGUF file is
run by llama.cpp: it has to cut texts into the same tokens, its logits are compared with those of transformers on held-out text, and its
bits per byte are measured. `<model>/README.md`, the card, names machines too, so the manifest does not list it.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from crawl2llm.chain.model_registry import EXPORT_STEP
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, task_of, write_atomically
from crawl2llm.stages.compress import card, facts, gguf
from crawl2llm.stages.compress.gguf_reference import auto_finds_tokenizer
from crawl2llm.stages.compress.gguf_support import SAFETENSORS
from crawl2llm.training.end_tokens import add_end
from crawl2llm.training.model_loading import load_tokenizer, model_folder, verify_weights

AUTO, PLAIN = "AutoTokenizer", "PreTrainedTokenizerFast"  # what loads the tokenizer


def copy_papers(root: Manifest, out: Path) -> list[Path]:
    """Copy what was published with the model of a manifest, its card under another name; the files."""
    return [Path(shutil.copyfile(path, out / name)) for name, path in card.parent_papers(root).items()]


def body(args: argparse.Namespace, settings: card.Task, manifest: Manifest) -> list[Path]:
    name, out = task_of(args.manifest), model_folder(args.manifest)
    model_facts = facts.read_facts(args.models, args.evaluations, [*args.record, *args.tokens], settings.sources)
    model, folder = verify_weights(args.models[0])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files, ggufs = [], []
    if types := [kind for kind in settings.types if kind != SAFETENSORS]:
        ggufs = gguf.export_gguf(folder, out, name, types, args.tokens, settings, manifest)
        files += [out / gguf["file"] for gguf in ggufs]
    if SAFETENSORS in settings.types:
        # Those that its manifest lists, not what somebody laid beside them.
        for path in sorted(
            path for path in map(model.file, model.files) if path.parent == folder and path.name != card.CARD
        ):
            shutil.copyfile(path, out / path.name)
            files.append(out / path.name)
        files = sorted({*files, *add_end(out, load_tokenizer(out).eos_token_id)})
    files += copy_papers(model_facts.root_model.manifest, out) if model_facts.published_root else []
    write_atomically(
        out / card.CARD,
        card.format_card(model_facts, settings, name, ggufs, AUTO if auto_finds_tokenizer(folder) else PLAIN),
    )
    size = sum(path.stat().st_size for path in files)
    log.info("%s files, %.1f MB, and the card in %s", len(files), size / 1e6, out)
    manifest.summary = {
        "of": model_facts.models[0].name,
        "types": settings.types,
        "bytes": size,
        "gguf": ggufs,
        "notes": [f"{name}: {note}" for note in dict.fromkeys(note for gguf in ggufs for note in gguf["notes"])],
    }
    return files


main = Program(EXPORT_STEP, __doc__, card.Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
