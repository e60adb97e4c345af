"""The tokens of a complete run: every document of the corpus comes back from them, under its id, in its source's dataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from crawl2llm.formats.megatron import open_indexed


@pytest.mark.slow
def test_every_document_comes_back(complete: Path) -> None:
    main = complete / "results/main"
    tokenizer = Tokenizer.from_file(str(main / "tokenize/train/tokenizer.json"))
    found: dict[tuple[str, str, str], str] = {}
    for path in sorted((main / "tokenize/encode").glob("*.manifest.json")):
        manifest = Manifest.read(path)
        assert manifest.summary["engines"] == {"tiktoken": 1}
        for name in (name for name in manifest.files if name.endswith(".bin")):
            split, source, _ = name.split("/")
            stem = name.removesuffix(".bin")
            tokens = open_indexed(manifest.file(name), manifest.file(f"{stem}.idx"))
            for row in rows(manifest.file(f"{stem}.docs.parquet")):
                *ids, end = tokens[row["offset"] :][: row["tokens"]].tolist()
                assert end == 0
                found[split, source, row["id"]] = tokenizer.decode(ids, skip_special_tokens=False)
    wanted = {
        (split, row["source"], row["id"]): row["text"]
        for split in ("train", "validation")
        for path in (main / "corpus/write" / split).glob("*.parquet")
        for row in rows(path, ["id", "source", "text"])
    }
    assert found == wanted and len(wanted) > 30
