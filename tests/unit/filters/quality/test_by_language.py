"""quality.select with `by: language`: the top fraction of each language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import by_language, select, top_fraction
from crawl2llm.filters.quality.score import SIGNAL
from crawl2llm.formats.documents import Writer, rows

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(st.dictionaries(st.sampled_from("abc"), SCORES, min_size=1), st.floats(0, 1), st.integers(1, 9))
def test_each_group_has_the_cut_that_it_would_have_alone(
    groups: dict[str, list[float]], fraction: float, size: int
) -> None:
    parts = [
        (name, np.array(values[start : start + size]))
        for name, values in groups.items()
        for start in range(0, len(values), size)
    ]
    wanted = {
        name: select.top_fraction_threshold(lambda values=values: [np.array(values)], fraction)
        for name, values in groups.items()
    }
    cuts = top_fraction.fraction_cuts(lambda: parts, np.array([fraction]))
    assert {name: float(cut) for name, (cut,) in cuts.items()} == wanted


def judged(folder: Path, by: str) -> tuple[Manifest, dict[str, dict[str, Any]]]:
    """200 English pages that score from 0.5 up, 120 Thai ones from 0.1 up, and four in two rare languages; the verdicts by id."""
    given = [("en", f"en{n}", 0.5 + n / 500) for n in range(200)] + [
        ("th", f"th{n}", 0.1 + n / 500) for n in range(120)
    ]
    given += [("fo", "fo0", 0.2), ("fo", "fo1", 0.4), ("br", "br0", 0.1), ("br", "br1", 0.3)]
    languages = pa.schema([("id", pa.string()), ("language", pa.string())])
    signals, labels = [], []
    for shard, part in (("00000", given[:150]), ("00001", given[150:])):
        for name, schema, paths in (("score", SIGNAL, signals), ("language", languages, labels)):
            with Writer(folder / name / f"{shard}.parquet", schema) as writer:
                for language, identifier, score in part:
                    row = {"id": identifier, "source": "web", "curated": False, "score": score, "language": language}
                    writer.add({key: row[key] for key in schema.names})
            paths.append(str(folder / name / f"{shard}.manifest.json"))
            Manifest(f"{name}.score", "x").write(Path(paths[-1]), [writer.path])
    mark = fingerprint("quality.select", config.validate({"quality": {"select": {"by": by}}}))
    argv = ["--config", mark, "--signals", *signals, "--manifest", str(folder / by / "manifest.json")]
    assert select.main([*argv, "--languages", *(labels if by == "language" else [])]) == 0
    made = Manifest.read(folder / by / "manifest.json")
    return made, {row["id"]: row for shard in ("00000", "00001") for row in rows(made.file(f"{shard}.parquet"))}


def test_half_of_each_language_stays(tmp_path: Path) -> None:
    made, found = judged(tmp_path, "language")
    kept = {
        name: sum(row["kept"] for key, row in found.items() if key.startswith(name))
        for name in ("en", "th", "fo", "br")
    }
    assert kept == {"en": 100, "th": 60, "fo": 1, "br": 1}
    assert (
        not found["th0"]["kept"] and found["th0"]["threshold"] == found["th59"]["threshold"] < found["en0"]["threshold"]
    )
    assert made.summary["by_language"][by_language.OTHER_LANGUAGES] == {
        "documents": 4,
        "threshold": 0.3,
        "languages": ["br", "fo"],
    }
    assert made.counts["kept"] == 162
    plain, of_all = judged(tmp_path, "all")
    assert not any(row["kept"] for key, row in of_all.items() if key.startswith("th")), (
        "the best half of all is English"
    )
    assert "by_language" not in plain.summary
