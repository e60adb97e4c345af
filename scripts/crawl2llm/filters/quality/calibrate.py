"""Learn how scores are spread: quantiles of each scorer on a sample of the crawl, cutoffs of its head, middle and tail, and how well
each scorer tells curated documents from the crawl.

quantiles.json has all of it. Another run that names the file in `quality.calibrate.reference` maps its scores by the same quantiles, so
that a score means the same in both. The sample is chosen by the hash of (seed, id), so that memory is `max_documents` rows of numbers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress, log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, write_atomically
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.quantiles import FILE, fuse_quantiles, quantile_table, quantiles_of
from crawl2llm.filters.quality.scorers import ANY_LANGUAGE, LM, TRAINED
from crawl2llm.filters.quality.settings import CalibrateSettings
from crawl2llm.filters.quality.train import roc_auc
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import count_rows, parquet_file, rows, uniform_hash

SUMMARY_QUANTILES = (0.1, 0.5, 0.9)  # quantiles of the summary


class Task(CalibrateSettings, SkippedBy):
    """The arguments of the program."""


def sample_scores(shards: list[list[Path]], settings: Task) -> pa.Table:
    """The scores of the sample: of the crawl's documents, and of curated ones, which `curated` tells."""
    share = min(1.0, settings.max_documents / max(sum(count_rows(parquet_file(paths[0])) for paths in shards), 1))
    parts, progress = [], Progress(len(shards), "shards")
    skipped = pa.array(settings.skipped_by, pa.string())
    for paths in shards:
        shard_scores = sidecars.join_sidecars(paths)
        shard_scores = shard_scores.filter(pc.invert(pc.is_in(shard_scores["source"], value_set=skipped)))
        if share < 1:
            drawn = [uniform_hash(settings.seed, name, "calibrate") < share for name in shard_scores["id"].to_pylist()]
            shard_scores = shard_scores.filter(pa.array(drawn, pa.bool_()))
        parts.append(shard_scores)
        progress.add()
    return pa.concat_tables(parts).combine_chunks()


def language_cutoffs(
    scores: np.ndarray, languages: list[str | None], shares: list[float], better: str
) -> dict[str, list[float]]:
    """Language → the two scores that part head, middle and tail: the best `shares[0]` and `shares[1]` of its documents.

    cc_net has the 30th and 60th percentile of perplexity, by language (Wenzek et al. 2020, arXiv:1911.00359, section 3.4).
    """
    names = np.array([name or ANY_LANGUAGE for name in languages], dtype=object)
    at = shares if better == "low" else [1 - share for share in shares]
    is_scored = ~np.isnan(scores)
    scores_by_language = {name: scores[is_scored & (names == name)] for name in sorted(set(names[is_scored]))}
    return {name: [float(value) for value in np.quantile(part, at)] for name, part in scores_by_language.items()}


def read_reference(path: str | None, names: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """What another run's quantiles.json says. Raises InputError if it is none, or lacks one of this run's scorers."""
    if path is None:
        return None
    where = f"quality.calibrate.reference is {path!r}"
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        reference_scorers = content["scorers"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}, which is not a {FILE} of quality.calibrate ({error})") from error
    if missing_scorers := [
        name for name, facts in names.items() if reference_scorers.get(name, {}).get("better") != facts["better"]
    ]:
        raise InputError(
            f"{where}, which has no quantiles of {', '.join(missing_scorers)}; it has those of {', '.join(reference_scorers)}"
        )
    return dict(content)


def calibrate_sample(scores: pa.Table, names: dict[str, dict[str, Any]], settings: Task) -> dict[str, Any]:
    """Tables and cutoffs of the sample's documents of the crawl."""
    crawl = scores.filter(pc.invert(scores["curated"]))
    scorer_tables: dict[str, Any] = {
        name: {**facts, "documents": int(len(crawl) - np.isnan(sidecars.scorer_values(crawl, name)).sum()),
               "values": quantile_table(sidecars.scorer_values(crawl, name))}
        for name, facts in names.items()
    }  # fmt: skip
    bucket_of, parts = settings.bucket_of or next((n for n, f in names.items() if f["kind"] == "kenlm"), None), {}
    if bucket_of:
        better = names[bucket_of]["better"]
        languages = crawl["language"].to_pylist()
        parts = (
            language_cutoffs(sidecars.scorer_values(crawl, bucket_of), languages, settings.buckets, better)
            | settings.cutoffs
        )
    return {"scorers": scorer_tables, "bucket_of": bucket_of, "cutoffs": parts}


def roc_auc_by_scorer(
    scores: pa.Table, names: dict[str, Any], trained: dict[str, Any], unseen: set[str] | None
) -> dict[str, Any]:
    """ROC-AUC of each scorer: curated documents of the sample against the crawl's, by what no scorer of the run learnt from.

    trained: the summary of quality.train, whose held-out documents are taken for its classifier. unseen: the ids of curated documents that
    quality.lm did not learn from; None if it trained nothing.
    """
    curated = scores["curated"].to_numpy(zero_copy_only=False)
    rows = {}
    for name, facts in names.items():
        if name == TRAINED:
            area, heldout = trained.get("roc_auc"), trained.get("heldout", {})
            rows[name] = {"roc_auc": area, **{key: heldout.get(key, 0) for key in ("positives", "negatives")}}
            continue
        values = sidecars.scorer_values(scores, name) * (1 if facts["better"] == "high" else -1)
        positive = curated & ~np.isnan(values)
        if name == LM and unseen is not None:
            positive &= np.array([identifier in unseen for identifier in scores["id"].to_pylist()], dtype=bool)
        negative = ~curated & ~np.isnan(values)
        area = roc_auc(values[positive], values[negative])
        rows[name] = {
            "roc_auc": None if np.isnan(area) else round(area, 6),
            "positives": int(positive.sum()),
            "negatives": int(negative.sum()),
        }
    return rows


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shards = [paths for _, paths in sidecars.manifests_by_shard(args.scores)]
    names = sidecars.read_scorers([part[0] for part in surviving_texts.manifests_by_step(args.scores)])
    scores = sample_scores(shards, settings)
    calibration = calibrate_sample(scores, names, settings)
    reference = read_reference(settings.reference, names)
    rule = {
        "method": settings.method,
        "weights": settings.weights,
        "rank_constant": settings.rank_constant,
    }
    if reference:
        calibration["scorers"] |= {name: reference["scorers"][name] for name in names}
        calibration["cutoffs"] = (
            reference["cutoffs"] | settings.cutoffs
            if calibration["bucket_of"] == reference["bucket_of"]
            else calibration["cutoffs"]
        )
    crawl = scores.filter(pc.invert(scores["curated"]))
    documents = max((facts["documents"] for facts in calibration["scorers"].values()), default=0)
    mapped = {
        name: quantiles_of(sidecars.scorer_values(crawl, name), facts["values"], facts["better"])
        for name, facts in calibration["scorers"].items()
    }
    fused_table = {
        "rule": rule,
        "documents": documents,
        "values": quantile_table(fuse_quantiles(mapped, rule, documents)),
    }
    # The same rule over the same scorers: the other run's table of what is fused counts too.
    same = reference and reference["fused"]["rule"] == rule and reference["scorers"].keys() == names.keys()
    calibration["fused"] = reference["fused"] if reference and same else fused_table
    out = args.manifest.with_name(FILE)
    write_atomically(out, json.dumps(calibration, indent=1, sort_keys=True) + "\n")

    trained = Manifest.read(args.model[0]).summary if args.model else {}
    lm = Manifest.read(args.lm[0]) if args.lm else None
    unseen = {row["id"] for row in rows(lm.file("heldout.parquet"), ["id"])} if lm and lm.files else None
    areas = roc_auc_by_scorer(scores, names, trained, unseen)
    manifest.summary = {
        "sampled": len(scores),
        "scorers": {
            name: {
                **{key: facts[key] for key in ("kind", "better")},
                **areas[name],
                "documents": int(len(crawl) - np.isnan(values := sidecars.scorer_values(crawl, name)).sum()),
                "quantiles": [round(float(score_at), 6) for score_at in np.nanquantile(values, SUMMARY_QUANTILES)]
                if not np.isnan(values).all()
                else [],
            }
            for name, facts in names.items()
        },
        "rule": rule,
        "bucket_of": calibration["bucket_of"],
        "cutoffs": calibration["cutoffs"],
        "reference": bool(reference),
    }
    for name, facts in areas.items():
        log.info(
            "ROC-AUC of %s: %s, on %s curated and %s other documents",
            name,
            facts["roc_auc"],
            *list(facts.values())[1:3],
        )
    return [out]


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Add --scores."""
    parser.add_argument("--scores", required=True, type=Path, nargs="+", help="manifests of every step that scores")


EXAMPLE = "--scores results/main/quality/fasttext/*.manifest.json"
main = Program("quality.calibrate", __doc__, Task, body, add_scores, EXAMPLE)


if __name__ == "__main__":
    raise SystemExit(main())
