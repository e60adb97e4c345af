"""Whether a result would come out the same: its settings, its code and what it consumed are as before, whatever differs above.

A fingerprint chains the steps above, so that an edit is seen although a run ended between two steps. What a task reads of them is in
its manifest, part by part, with digests. So once all that it reads is made, a result whose settings, code, files named by keys and
inputs are the same is the result of today's fingerprint too, and is marked so. With what it was made is in the record beside its
manifest, which counts only as far as it is that of this manifest: the two name the same fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import EXPORT_STEP, MAKERS
from crawl2llm.chain.steps import COMPARE_ALL, LIST, REPORT_STEP, RUNG, SYNTHESIZE, is_of_main
from crawl2llm.core import checkpoint_folders, manifest_ranges, record
from crawl2llm.core.manifest import Manifest, canonical_json, combine_sources, digest, task_of

NOTHING_TO_DO = "nothing to do: settings, code and input are as before"
UNCHANGED_JOB = "unchanged"  # in what Snakemake logs: the number of a job that had nothing to do and was not started
UPSTREAM = "upstream"  # in a fingerprint: the steps above, by name, with a digest of the fingerprint of each
TELLS_ABOVE = (EXPORT_STEP, REPORT_STEP, COMPARE_ALL)  # show fingerprints of the steps above: these count for them
# Read what no manifest holds: servers, a model behind an endpoint, and what each task cost.
ALWAYS_START = (LIST, *SYNTHESIZE, REPORT_STEP, COMPARE_ALL)
CHECKPOINTS = Path("checkpoints")  # of all trainings of a run, as the rules leave it
KEEPS_CHECKPOINTS = (*MAKERS, RUNG)


def without_above(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """What a fingerprint (parsed) says of the step alone: settings, code, and files that keys name."""
    if fingerprint.get("step") in TELLS_ABOVE:
        return dict(fingerprint)
    return {key: value for key, value in fingerprint.items() if key != UPSTREAM}


def is_made_by(manifest: Manifest, path: Path, fingerprint: str) -> bool:
    """Whether a result was made with the settings, code and files of a fingerprint. path: where its manifest lies, or lay.

    False without its record, and with one of another result: then nobody knows.
    """
    if manifest.fingerprint == digest(fingerprint):
        return True
    old_record = record.read(path)
    before = old_record.get("fingerprint")
    if not isinstance(before, dict):
        return False
    if manifest.fingerprint not in (digest(canonical_json(before)), old_record.get(record.RENEWED)):
        return False
    return without_above(before) == without_above(json.loads(fingerprint))


def consumes_the_same(
    manifest: Manifest, manifests: Mapping[str, Manifest], other_inputs: Mapping[str, dict[str, str]]
) -> bool:
    """Whether a task that is given these manifests would read what its manifest says that it read; False if it reads nothing.

    other_inputs: what it reads that is no manifest, as `inputs` of its manifest names it.
    """
    names, consumed = manifests.keys() | other_inputs.keys(), manifest_ranges.unpack_ranges(manifest.inputs)
    return (
        bool(names)
        and names == consumed.keys()
        and all(consumed[key] == marks for key, marks in other_inputs.items())
        and all(manifests[key].digest_of(part) == mark for key in manifests for part, mark in consumed[key].items())
    )


def sources_if_same(
    manifest: Manifest,
    path: Path,
    fingerprint: str,
    manifests: Mapping[str, Manifest],
    other_inputs: Mapping[str, dict[str, str]],
) -> dict[str, str] | None:
    """`sources` as they are now of a result that would come out the same; None of any other.

    path, fingerprint: as of `is_made_by`; manifests, other_inputs: as of `consumes_the_same`.
    """
    if not is_made_by(manifest, path, fingerprint) or not consumes_the_same(manifest, manifests, other_inputs):
        return None
    consumed = manifest_ranges.unpack_ranges(manifest.inputs)
    files = [{task_of(path): mark} for marks in other_inputs.values() for mark in marks.values()]
    return combine_sources(
        [
            *files,
            *sources_of(manifest.step, (input_manifest for key, input_manifest in manifests.items() if consumed[key])),
        ]
    )


def sources_of(step: str, read: Iterable[Manifest]) -> list[dict[str, str]]:
    """`sources` of what a task of a step has read, without what is main's in every variant, whose source files may be others."""
    return [manifest.sources for manifest in read if not is_of_main(step, manifest.step)]


def renew_result(manifest: Manifest, fingerprint: str, sources: dict[str, str], checkpoints: Path) -> None:
    """Mark a result as that of a fingerprint and of these source files. checkpoints: the folder of all trainings' checkpoints.

    The record first: where this is cut off before the manifest, the record says of which fingerprint the manifest still is.
    """
    mark, before = digest(fingerprint), manifest.fingerprint
    assert manifest.path is not None
    if before != mark:
        record.update_fingerprint(manifest.path, fingerprint, **{record.RENEWED: before})
        if manifest.step in KEEPS_CHECKPOINTS:
            checkpoint_folders.replace_fingerprint(checkpoints, manifest.path, before, mark)
    manifest.update_fingerprint(mark, sources)
