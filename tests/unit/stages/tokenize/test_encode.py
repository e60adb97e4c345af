"""tokenize.encode: the indexed dataset holds every document's ids, and each token leads back to its document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import SPLITS, rows, uniform_hash
from crawl2llm.stages.tokenize import encode, ranks
from crawl2llm.training import data, heldout, stream_documents
from tests.unit import making
from tests.unit.formats.megatron import read
from tests.unit.stages.tokenize.conftest import SHARDS, corpus


def run(folder: Path, made: Path, trained: Path, **settings: str) -> Manifest:
    path = folder / made.name
    argv = [
        "--config",
        making.config("tokenize.encode", **settings),
        "--corpus",
        str(made),
        "--tokenizer",
        str(trained),
    ]
    assert encode.main([*argv, "--manifest", str(path)]) == 0
    return Manifest.read(path)


def sources(texts: list[str]) -> dict[str, list[int]]:
    """The numbers of the documents of each source, as the corpus fixture gives them."""
    found = {
        "reference": [n for n in range(len(texts)) if n % 3 == 2],
        "web": [n for n in range(len(texts)) if n % 3 != 2],
    }
    return {source: numbers for source, numbers in found.items() if numbers}


def test_dataset_is_the_encodings(
    tmp_path: Path, corpora: list[Path], trained: Path, tokenizer: Tokenizer, texts: dict[str, dict[str, list[str]]]
) -> None:
    for made in corpora:
        shard = made.name.split(".")[0]
        manifest = run(tmp_path, made, trained)
        for split in SPLITS:
            of_split = dict.fromkeys(("documents", "tokens", "bytes"), 0)
            for source, numbers in sources(texts[shard][split]).items():
                stem = f"{split}/{source}/{shard}"
                dtype, documents = read(manifest.file(f"{stem}.bin").with_suffix(""))
                given = [texts[shard][split][n] for n in numbers]
                assert dtype == np.dtype(np.uint16)
                assert documents == [[*tokenizer.encode(text, add_special_tokens=False).ids, 0] for text in given]
                assert [tokenizer.decode(ids[:-1], skip_special_tokens=False) for ids in documents] == given
                flat = [token for ids in documents for token in ids]
                assert flat.count(0) == len(given), "a text that spells <|endoftext|> ends no document"

                facts = list(rows(manifest.file(f"{stem}.docs.parquet")))
                assert [fact["id"] for fact in facts] == [f"{shard}-{split}-{n}" for n in numbers]
                assert [flat[fact["offset"] :][: fact["tokens"]] for fact in facts] == documents
                assert [fact["bytes"] for fact in facts] == [len(text.encode()) for text in given]
                sizes = {"tokens": len(flat), "documents": len(given), "bytes": sum(fact["bytes"] for fact in facts)}
                assert manifest.summary["by_source"][split][source] == sizes
                of_split = {key: of_split[key] + sizes[key] for key in of_split}
            assert manifest.summary[split] == of_split
        assert manifest.counts["in"] == manifest.counts["kept"] == sum(len(texts[shard][s]) for s in SPLITS)
        assert manifest.summary["engines"] == {"tiktoken": 1} and manifest.summary["compared"] >= 2


def test_training_reads_the_sources_of_a_shard_by_name(
    tmp_path: Path, corpora: list[Path], trained: Path, texts: dict[str, dict[str, list[str]]]
) -> None:
    manifests = [run(tmp_path, made, trained) for made in corpora]
    files = [tmp_path / f"train/{source}/{shard}.bin" for shard in SHARDS for source in ("reference", "web")]
    stream = data.open_split([manifest.path for manifest in manifests if manifest.path], "train")
    wanted = np.concatenate([np.fromfile(path, np.uint16) for path in files])
    assert (stream.read(0, len(stream)) == wanted).all() and len(stream) == len(wanted)
    ids = [
        f"{shard}-train-{n}" for shard in SHARDS for numbers in sources(texts[shard]["train"]).values() for n in numbers
    ]
    everything = np.arange(len(stream) // 64 + 1)
    paths = [manifest.path for manifest in manifests if manifest.path]
    assert stream_documents.document_ids(paths, data.window_places(everything, 64)) == ids
    chosen, number = heldout.choose_documents([manifest.path for manifest in manifests if manifest.path], 10**9, 0)
    held = {f"{shard}-validation-{n}": text for shard in SHARDS for n, text in enumerate(texts[shard]["validation"])}
    assert number == len(chosen) == len(held)
    assert {document.id: document.bytes for document in chosen} == {
        name: len(text.encode()) for name, text in held.items()
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """The datasets below the folder of a step's results."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*/*")}


@pytest.mark.parametrize("other", ["again", "tokenizers", "small batches", "threads"])
def test_same_bytes(
    tmp_path: Path, corpora: list[Path], trained: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", corpora[0], trained)
    encode.load_engine.cache_clear()
    if other == "small batches":
        monkeypatch.setattr(encode, "BYTES", 5000)
        monkeypatch.setattr(encode, "ROWS", 3)
    if other == "threads":
        monkeypatch.setenv("RAYON_NUM_THREADS", "3")
    run(tmp_path / "b", corpora[0], trained, engine="tokenizers" if other == "tokenizers" else "auto")
    encode.load_engine.cache_clear()
    one, two = files_of(tmp_path / "a"), files_of(tmp_path / "b")
    assert len(one) == 2 * 2 * 3  # splits, sources, kinds of files
    assert one == two


def test_texts_are_read_in_lists_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [10, 20, 30, 500, 1, 1, 99]
    (made,) = corpus(tmp_path, {"00000": {"train": ["x" * n for n in lengths], "validation": []}})
    monkeypatch.setattr(encode, "BYTES", 100)
    found = [[len(text) for _, _, text in part] for part in encode.text_batches(made.parent / "train/00000.parquet")]
    assert found == [[10, 20, 30], [500], [1, 1], [99]]


def test_what_an_earlier_run_left_of_a_source_is_removed(tmp_path: Path, trained: Path) -> None:
    (made,) = corpus(tmp_path / "c", {"00000": {"train": ["a", "b", "c"], "validation": ["d"]}})
    run(tmp_path / "out", made, trained)
    (tmp_path / "out/00000.manifest.json").unlink()
    old = [tmp_path / f"out/train/{name}" for name in ("00000.bin", "00000.idx", "other/00001.bin")]
    for path in old:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    (made,) = corpus(tmp_path / "d", {"00000": {"train": ["a", "b"], "validation": ["d"]}})
    manifest = run(tmp_path / "out", made, trained)
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").glob("*/**/*.*")}
    assert found == {*manifest.files, "train/other/00001.bin"}, "only files of this shard"


def test_a_difference_between_the_engines_fails_the_task_by_document(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tiktoken with an expression that leaves spaces alone, and one document of the sample that has some."""
    sampled = next(n for n in range(1, 10_000) if uniform_hash(0, f"00000-train-{n}", "engine") < encode.COMPARED_SHARE)
    texts = ["One of the words" if n == sampled else "Words" for n in range(sampled + 5)]
    (made,) = corpus(tmp_path / "c", {"00000": {"train": texts, "validation": ["x"]}})
    monkeypatch.setattr(ranks, "piece_pattern", lambda _: r"\p{L}+|\P{L}")
    encode.load_engine.cache_clear()
    argv = ["--config", making.config("tokenize.encode"), "--corpus", str(made), "--tokenizer", str(trained)]
    assert encode.main([*argv, "--manifest", str(tmp_path / "out/00000.manifest.json")]) == 1
    encode.load_engine.cache_clear()
    said = capsys.readouterr().err
    assert f"document 00000-train-{sampled}: tiktoken gives other tokens than tokenizers, from token" in said
    assert "set tokenize.encode.engine to tokenizers" in said
    assert not (tmp_path / "out/00000.manifest.json").exists()


def test_empty_shard(tmp_path: Path, trained: Path) -> None:
    (made,) = corpus(tmp_path / "c", {"00000": {"train": [], "validation": []}})
    manifest = run(tmp_path / "out", made, trained)
    assert manifest.summary["train"] == {"documents": 0, "tokens": 0, "bytes": 0}
    assert manifest.files == {} and not (tmp_path / "out/train").exists()
    assert len(data.open_split([manifest.path], "train")) == 0


def test_documents_that_the_corpus_counts_and_lacks_are_missed(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made,) = corpus(tmp_path / "c", {"00000": {"train": ["a"], "validation": ["b"]}})
    manifest = Manifest.read_unchecked(made)
    manifest.summary["train"]["documents"] += 1
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
    dtype, ((*ids, end),) = read(tmp_path / "out/train/web/00000")
    assert dtype == np.dtype(np.int32) and end == 0
    assert grown.decode(ids) == "Words token64999xyz here" and max(ids) == 1500 + 64_999
