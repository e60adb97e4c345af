"""Score every document of a shard by its perplexity under KenLM language models: those of quality.lm, and ready ones by language.

Signals: `id, source, curated, language` and a column for each scorer; low is good. Null for a document whose language has no model, and
for one without a line of text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.step_program import Program
from crawl2llm.core import pinned_names
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.lm import language_by_id
from crawl2llm.filters.quality.perplexity import Models
from crawl2llm.filters.quality.scorers import ANY_LANGUAGE, LM, language_model_files
from crawl2llm.filters.quality.settings import KenlmSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import Writer, parquet_file, shard_of, surviving_documents, verdict_file


def models_by_scorer(args: argparse.Namespace, settings: KenlmSettings) -> dict[str, dict[str, Path]]:
    """Scorer → its models by language."""
    paths_by_scorer = {
        entry.name: language_model_files(
            Path(pinned_names.verified_path(entry.path, f"quality.kenlm.models: {entry.name}"))
        )
        for entry in settings.models
    }
    for path in args.lm:
        lm_manifest = Manifest.read(path)
        paths_by_scorer[LM] = {
            Path(name).stem: lm_manifest.file(name) for name in lm_manifest.files if name.endswith(".bin")
        }
    return paths_by_scorer


def body(args: argparse.Namespace, settings: KenlmSettings, manifest: Manifest) -> list[Path]:
    document_languages, limit = language_by_id(args.languages, shard_of(args.documents)), settings.max_characters
    paths = models_by_scorer(args, settings)
    number = surviving_texts.count_documents(args.documents, args.verdicts)
    progress = Progress(number * len(paths), "perplexities")
    perplexities: dict[str, dict[str, float]] = {}
    for name, model_paths in paths.items():
        # Without the filter language every document is asked of the one model that there is.
        only_language = next(iter(model_paths)) if len(model_paths) == 1 else ANY_LANGUAGE
        texts = surviving_texts.texts(args.documents, args.verdicts, args.edits, [])
        documents = (
            (row["id"], document_languages.get(row["id"], only_language), row["text"][:limit]) for row in texts
        )
        with scratch_folder(args.manifest.with_name(f".{shard_of(args.documents)}.{name}")) as folder:
            perplexities[name] = Models(model_paths).perplexity_by_id(documents, folder, progress.add)
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    with Writer(out, sidecars.sidecar_schema(list(paths), language=True)) as writer:
        shard = shard_of(args.documents)
        for row in surviving_documents(
            parquet_file(args.documents), verdict_file(args.verdicts, shard), ["id", "source", "curated"]
        ):
            scores = {name: scores_by_id.get(row["id"]) for name, scores_by_id in perplexities.items()}
            writer.add({**row, "language": document_languages.get(row["id"]), **scores})
    manifest.count_all_kept(number)
    manifest.summary = {
        "scorers": sidecars.describe_scorers(dict.fromkeys(paths, "low"), "kenlm"),
        "without_model": {name: number - len(each) for name, each in perplexities.items()},
    }
    return [out]


main = Program("quality.kenlm", __doc__, KenlmSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
