"""The export for nanotron: the same tokens, and where the documents end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from crawl2llm.stages.tokenize import encode, nanotron
from tests.unit import making
from tests.unit.formats.megatron import read


@pytest.mark.parametrize("link", [True, False])
def test_tokens_and_ends(
    tmp_path: Path, corpora: list[Path], trained: Path, link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [tmp_path / "encode" / path.name for path in corpora]
    for path, given in zip(made, corpora, strict=True):
        argv = ["--config", making.config("tokenize.encode"), "--corpus", str(given), "--tokenizer", str(trained)]
        assert encode.main([*argv, "--manifest", str(path)]) == 0

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if not link:
        monkeypatch.setattr(os, "link", refuse)
    argv = ["--tokens", *map(str, made), "--to", str(tmp_path / "out")]
    assert nanotron.main(argv) == nanotron.main(argv) == 0  # again, over what is there
    found = sorted(path.relative_to(tmp_path / "out").with_suffix("") for path in (tmp_path / "out").rglob("*.ds"))
    assert len(found) == 8  # shards, splits, sources
    for stem in found:
        _, documents = read(tmp_path / "encode" / stem)
        file = tmp_path / "out" / f"{stem}.ds"
        assert np.fromfile(file, np.uint16).tolist() == [number for ids in documents for number in ids]
        assert np.fromfile(f"{file}.index", np.uint64).tolist() == np.cumsum([len(ids) for ids in documents]).tolist()
        assert file.samefile(tmp_path / "encode" / f"{stem}.bin") == link
