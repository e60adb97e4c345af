"""tokenize.encode: the indexed dataset holds every document's ids, and each token leads back to its document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from scripts.formats.documents import rows
from scripts.pretrain import data
from scripts.tokenize import encode
from scripts.tokenize.encode import SPLITS
from scripts.workflow.manifest import Manifest
from tests.unit import making
from tests.unit.formats.megatron import read
from tests.unit.tokenize.conftest import corpus


def run(folder: Path, made: Path, trained: Path) -> Manifest:
    path = folder / made.name
    argv = ["--config", making.config("tokenize.encode"), "--corpus", str(made), "--tokenizer", str(trained)]
    assert encode.main([*argv, "--manifest", str(path)]) == 0
    return Manifest.read(path)


def test_dataset_is_the_encodings(
    tmp_path: Path, corpora: list[Path], trained: Path, tokenizer: Tokenizer, texts: dict[str, dict[str, list[str]]]
) -> None:
    for made in corpora:
        shard = made.name.split(".")[0]
        manifest = run(tmp_path, made, trained)
        for split in SPLITS:
            dtype, documents = read(manifest.file(f"{split}/{shard}.bin").with_suffix(""))
            given = texts[shard][split]
            assert dtype == np.dtype(np.uint16)
            assert documents == [[*tokenizer.encode(text, add_special_tokens=False).ids, 0] for text in given]
            assert [tokenizer.decode(ids[:-1], skip_special_tokens=False) for ids in documents] == given
            flat = [token for ids in documents for token in ids]
            assert flat.count(0) == len(given), "a text that spells <|endoftext|> ends no document"

            facts = list(rows(manifest.file(f"{split}/{shard}.docs.parquet")))
            assert [fact["id"] for fact in facts] == [f"{shard}-{split}-{n}" for n in range(len(given))]
            assert [flat[fact["offset"] :][: fact["tokens"]] for fact in facts] == documents
            assert [fact["bytes"] for fact in facts] == [len(text.encode()) for text in given]
            sizes = {"tokens": len(flat), "documents": len(given), "bytes": sum(fact["bytes"] for fact in facts)}
            assert manifest.summary[split] == sizes
        assert manifest.counts["in"] == manifest.counts["kept"] == sum(len(texts[shard][s]) for s in SPLITS)


def test_same_bytes_again(tmp_path: Path, corpora: list[Path], trained: Path) -> None:
    for name in "ab":
        run(tmp_path / name, corpora[0], trained)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) == 9
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path


def test_empty_shard(tmp_path: Path, trained: Path) -> None:
    (made,) = corpus(tmp_path / "c", {"00000": {"train": [], "validation": []}})
    manifest = run(tmp_path / "out", made, trained)
    assert manifest.summary["train"] == {"documents": 0, "tokens": 0, "bytes": 0}
    assert sorted(manifest.files) == ["train/00000.docs.parquet", "validation/00000.docs.parquet"]
    assert not list((tmp_path / "out").rglob("*.bin")) and not list((tmp_path / "out").rglob("*.idx"))
    assert len(data.open_split([manifest.path], "train")) == 0


def test_documents_that_the_corpus_counts_and_lacks_are_missed(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made,) = corpus(tmp_path / "c", {"00000": {"train": ["a"], "validation": ["b"]}})
    manifest = Manifest.read(made)
    manifest.counts = {"in": 3, "kept": 3, "dropped": {}}
    manifest.write(made, [manifest.file(name) for name in manifest.files])
    argv = ["--config", making.config("tokenize.encode"), "--corpus", str(made), "--tokenizer", str(trained)]
    assert encode.main([*argv, "--manifest", str(tmp_path / "out/00000.manifest.json")]) == 1
    assert "in = kept + dropped does not hold" in capsys.readouterr().err


def test_large_vocabulary_takes_32_bits(tmp_path: Path, tokenizer: Tokenizer, trained: Path) -> None:
    grown = Tokenizer.from_str(tokenizer.to_str())
    grown.add_tokens([f"token{number}xyz" for number in range(65_000)])
    path = tmp_path / "tokenizer/tokenizer.json"
    path.parent.mkdir()
    grown.save(str(path))
    Manifest("tokenize.train", "test").write(path.with_name("manifest.json"), [path])
    (made,) = corpus(tmp_path / "c", {"00000": {"train": ["Words token64999xyz here"], "validation": []}})
    run(tmp_path / "out", made, path.with_name("manifest.json"))
    dtype, ((*ids, end),) = read(tmp_path / "out/train/00000")
    assert dtype == np.dtype(np.int32) and end == 0
    assert grown.decode(ids) == "Words token64999xyz here" and max(ids) == 1500 + 64_999
