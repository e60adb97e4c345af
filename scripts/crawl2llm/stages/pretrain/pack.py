"""Pack the documents of the training stream into windows, by best fit: once, as files that every training with these tokens maps.

Reads the documents' lengths and no token. Writes `context-N.windows`, `context-N.pieces` and `context-N.blocks`
(training/packed_windows.py); the manifest's summary has what was made of the documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import AUTO, Auto, Settings, setting
from crawl2llm.stages.pretrain.settings import PackSettings
from crawl2llm.training import auto, data, packing
from crawl2llm.training.packed_windows import PACKING, totals_text


class PackedTraining(Settings):
    """What decides the windows of a training. global_batch_tokens: of pretrain.train, if it chooses the context."""

    context: int | Auto
    global_batch_tokens: int | Auto = setting(AUTO)


class Task(PackSettings):
    """What the program is given. trainings: those whose documents are packed, each once."""

    trainings: list[PackedTraining]


def body(args: argparse.Namespace, task: Task, manifest: Manifest) -> list[Path]:
    stream = data.open_split(args.tokens, "train")
    contexts = {
        training.context
        if isinstance(training.context, int)
        else auto.resolve_context(len(stream), training.global_batch_tokens)
        for training in task.trainings
    }
    files, by_context = [], {}
    for context in sorted(contexts):
        written, (totals,) = packing.write_packing(stream, context, args.manifest.parent)
        files += written
        by_context[str(context)] = totals
        log.info("context %s. %s", f"{context:,}", totals_text(totals))
    manifest.summary = {PACKING: by_context}
    return files


main = Program("pretrain.pack", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
