"""Bring a published model, a folder or a GGUF file, into the form of this run's own models.

Writes `<model>/model/`: safetensors, config.json, tokenizer and chat template, as they are there. A folder's weights are linked, or copied
from another file system.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import asdict
from pathlib import Path

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.stages.pretrain.settings import PublishedSettings
from crawl2llm.stages.pretrain.steps import published_source
from crawl2llm.training import model, packed_weights, quantized_weights
from crawl2llm.training.model_loading import load_tokenizer, model_folder
from crawl2llm.training.published.checks import check_published
from crawl2llm.training.published.folder import content_digest, write_model_folder
from crawl2llm.training.published.weights import check_weights


class Task(PublishedSettings):
    """What the program is given. content: digest of the model's files."""

    content: str


def body(args: argparse.Namespace, task: Task, manifest: Manifest) -> list[Path]:
    key = f"models.{task_of(args.manifest)}.{'path' if task.path else 'hub'}"
    source = published_source(task.path, task.hub, task.revision)
    check_published(source, key)
    if (content := content_digest(source)) != task.content:
        raise InputError(
            f"{key} is {str(source)!r}: its files have changed since the run began ({content}, planned {task.content})"
        )
    folder = model_folder(args.manifest) / model.FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    facts = write_model_folder(source, folder)
    # Quantized weights have other names.
    if not (packed_weights.is_packed(folder) or quantized_weights.is_quantized(folder)):
        check_weights(folder, f"{key} is {str(source)!r}")
    log.info("%s: %s, %s parameters", facts.name, facts.type, f"{facts.parameters:,}")
    end = load_tokenizer(folder).eos_token
    manifest.summary = {"trained": True, **asdict(facts), "end_token": end, "content": content, "notes": []}
    return sorted(path for path in folder.iterdir() if path.is_file())


main = Program("pretrain.published", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
