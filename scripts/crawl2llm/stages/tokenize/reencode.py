"""Encode the corpus with the tokenizer of a published model, as tokenize.encode does with the run's own.

Writes `{train,validation}/<source>/<model>-<shard>.*`: the same files, each document with the model's end token behind it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tokenizers import Tokenizer

from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.formats.documents import SPLITS, shard_of
from crawl2llm.stages.tokenize.encode import KINDS, encode_split
from crawl2llm.stages.tokenize.engine import reference_engine
from crawl2llm.stages.tokenize.settings import ReencodeSettings
from crawl2llm.training.model_loading import load_tokenizer, verify_weights


def body(args: argparse.Namespace, settings: ReencodeSettings, manifest: Manifest) -> list[Path]:
    source = verify_weights(args.model)[1]
    end = load_tokenizer(source).eos_token
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_truncation()  # which some are published with
    tokenizer.no_padding()
    engine = reference_engine(tokenizer)
    corpora = [(shard_of(path), Manifest.read(path)) for path in sorted(args.corpus)]
    progress = Progress(sum(corpus.summary[split]["bytes"] for _, corpus in corpora for split in SPLITS), "bytes")
    files: list[Path] = []
    totals = {split: dict.fromkeys(("documents", "tokens", "bytes"), 0) for split in SPLITS}
    for shard, corpus in corpora:
        for split in SPLITS:
            documents, folder = corpus.file(f"{split}/{shard}.parquet"), args.manifest.parent / split
            stem = f"{task_of(args.manifest)}-{shard}"
            sources, _ = encode_split(documents, folder, stem, tokenizer, engine, progress, end)
            files += [folder / name / f"{stem}{kind}" for name in sources for kind in KINDS]
            for part in sources.values():
                totals[split] = {key: total + part[key] for key, total in totals[split].items()}
    manifest.summary = {**totals, "end_token": end}
    manifest.count_all_kept(sum(part["documents"] for part in totals.values()))
    return files


main = Program("tokenize.reencode", __doc__, ReencodeSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
