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

from crawl2llm.chain import command_line
from crawl2llm.chain.scorers import ANY, LM, TRAINED
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, write_atomically
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.quantiles import FILE, fused, quantile, table
from crawl2llm.filters.quality.train import roc_auc
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import count, data, rows, uniform

SHOWN = (0.1, 0.5, 0.9)  # quantiles of the summary


def sample(shards: list[list[Path]], settings: dict[str, Any]) -> pa.Table:
    """The scores of the sample: of the crawl's documents, and of curated ones, which `curated` tells."""
    share = min(1.0, settings["max_documents"] / max(sum(count(data(paths[0])) for paths in shards), 1))
    parts, progress = [], Progress(len(shards), "shards")
    skipped = pa.array(settings["skipped_by"], pa.string())
    for paths in shards:
        found = sidecars.joined(paths)
        found = found.filter(pc.invert(pc.is_in(found["source"], value_set=skipped)))
        if share < 1:
            drawn = [uniform(settings["seed"], name, "calibrate") < share for name in found["id"].to_pylist()]
            found = found.filter(pa.array(drawn, pa.bool_()))
        parts.append(found)
        progress.add()
    return pa.concat_tables(parts).combine_chunks()


def cutoffs(
    scores: np.ndarray, languages: list[str | None], shares: list[float], better: str
) -> dict[str, list[float]]:
    """Language → the two scores that part head, middle and tail: the best `shares[0]` and `shares[1]` of its documents.

    cc_net has the 30th and 60th percentile of perplexity, by language (Wenzek et al. 2020, arXiv:1911.00359, section 3.4).
    """
    names = np.array([name or ANY for name in languages], dtype=object)
    at = shares if better == "low" else [1 - share for share in shares]
    known = ~np.isnan(scores)
    found = {name: scores[known & (names == name)] for name in sorted(set(names[known]))}
    return {name: [float(value) for value in np.quantile(part, at)] for name, part in found.items()}


def reference(path: str | None, names: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """What another run's quantiles.json says. Raises InputError where it is none, or lacks one of this run's scorers."""
    if path is None:
        return None
    where = f"quality.calibrate.reference is {path!r}"
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        known = held["scorers"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise command_line.InputError(f"{where}, which is no {FILE} of quality.calibrate ({error})") from error
    if lacking := [name for name, facts in names.items() if known.get(name, {}).get("better") != facts["better"]]:
        raise command_line.InputError(
            f"{where}, which has no quantiles of {', '.join(lacking)}; it has those of {', '.join(known)}"
        )
    return dict(held)


def own(scores: pa.Table, names: dict[str, dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Tables and cutoffs of the sample's documents of the crawl."""
    crawl = scores.filter(pc.invert(scores["curated"]))
    found: dict[str, Any] = {
        name: {**facts, "documents": int(len(crawl) - np.isnan(sidecars.values(crawl, name)).sum()),
               "values": table(sidecars.values(crawl, name))}
        for name, facts in names.items()
    }  # fmt: skip
    bucket_of, parts = settings["bucket_of"] or next((n for n, f in names.items() if f["kind"] == "kenlm"), None), {}
    if bucket_of:
        better = names[bucket_of]["better"]
        languages = crawl["language"].to_pylist()
        parts = cutoffs(sidecars.values(crawl, bucket_of), languages, settings["buckets"], better) | settings["cutoffs"]
    return {"scorers": found, "bucket_of": bucket_of, "cutoffs": parts}


def areas(scores: pa.Table, names: dict[str, Any], trained: dict[str, Any], unseen: set[str] | None) -> dict[str, Any]:
    """ROC-AUC of each scorer: curated documents of the sample against the crawl's, by what no scorer of the run learnt from.

    trained: the summary of quality.train, whose held-out documents are taken for its classifier. unseen: the ids of curated documents that
    quality.lm did not learn from; None where it trained nothing.
    """
    curated = scores["curated"].to_numpy(zero_copy_only=False)
    found = {}
    for name, facts in names.items():
        if name == TRAINED:
            area, held = trained.get("roc_auc"), trained.get("heldout", {})
            found[name] = {"roc_auc": area, **{key: held.get(key, 0) for key in ("positives", "negatives")}}
            continue
        values = sidecars.values(scores, name) * (1 if facts["better"] == "high" else -1)
        good = curated & ~np.isnan(values)
        if name == LM and unseen is not None:
            good &= np.array([each in unseen for each in scores["id"].to_pylist()], dtype=bool)
        bad = ~curated & ~np.isnan(values)
        area = roc_auc(values[good], values[bad])
        found[name] = {
            "roc_auc": None if np.isnan(area) else round(area, 6),
            "positives": int(good.sum()),
            "negatives": int(bad.sum()),
        }
    return found


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shards = [paths for _, paths in sidecars.by_shard(args.scores)]
    names = sidecars.scorers([part[0] for part in surviving_texts.by_step(args.scores)])
    scores = sample(shards, settings)
    made = own(scores, names, settings)
    given = reference(settings["reference"], names)
    rule = {key: settings[key] for key in ("method", "weights", "rank_constant")}
    if given:
        made["scorers"] |= {name: given["scorers"][name] for name in names}
        made["cutoffs"] = (
            given["cutoffs"] | settings["cutoffs"] if made["bucket_of"] == given["bucket_of"] else made["cutoffs"]
        )
    crawl = scores.filter(pc.invert(scores["curated"]))
    documents = max((facts["documents"] for facts in made["scorers"].values()), default=0)
    mapped = {
        name: quantile(sidecars.values(crawl, name), facts["values"], facts["better"])
        for name, facts in made["scorers"].items()
    }
    whole = {"rule": rule, "documents": documents, "values": table(fused(mapped, rule, documents))}
    # The same rule over the same scorers: the other run's table of what is fused counts too.
    same = given and given["fused"]["rule"] == rule and given["scorers"].keys() == names.keys()
    made["fused"] = given["fused"] if given and same else whole
    out = args.manifest.with_name(FILE)
    write_atomically(out, json.dumps(made, indent=1, sort_keys=True) + "\n")

    trained = Manifest.read(args.model[0]).summary if args.model else {}
    lm = Manifest.read(args.lm[0]) if args.lm else None
    unseen = {row["id"] for row in rows(lm.file("heldout.parquet"), ["id"])} if lm and lm.files else None
    found = areas(scores, names, trained, unseen)
    manifest.summary = {
        "sampled": len(scores),
        "scorers": {
            name: {
                **{key: facts[key] for key in ("kind", "better")},
                **found[name],
                "documents": int(len(crawl) - np.isnan(values := sidecars.values(crawl, name)).sum()),
                "quantiles": [round(float(one), 6) for one in np.nanquantile(values, SHOWN)]
                if not np.isnan(values).all()
                else [],
            }
            for name, facts in names.items()
        },
        "rule": rule,
        "bucket_of": made["bucket_of"],
        "cutoffs": made["cutoffs"],
        "reference": bool(given),
    }
    for name, facts in found.items():
        log.info(
            "ROC-AUC of %s: %s, on %s curated and %s other documents",
            name,
            facts["roc_auc"],
            *list(facts.values())[1:3],
        )
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "quality.calibrate",
        __doc__,
        "--config config.yaml --scores results/main/quality/fasttext/*.manifest.json --manifest /tmp/calibrate/manifest.json",
    )
    parser.add_argument("--scores", required=True, type=Path, nargs="+", help="manifests of every step that scores")
    parser.add_argument(
        "--model", type=Path, nargs="*", default=[], help="manifest of quality.train, where there is one"
    )
    parser.add_argument("--lm", type=Path, nargs="*", default=[], help="manifest of quality.lm, where there is one")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
