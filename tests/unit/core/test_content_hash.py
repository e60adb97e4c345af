"""Contents: a file that holds other bytes has another digest, whatever its times say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core import content_hash
from crawl2llm.core.plan_cache import Cache


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(content_hash, "_digest_cache", Cache(content_hash.CACHE))


def test_an_edit_of_the_same_size_with_the_old_times_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a" * 100_000 + "b" + "a" * 100_000)
    before, facts = content_hash.cached_hash(file), file.stat()
    file.write_text("a" * 100_000 + "c" + "a" * 100_000)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert content_hash.cached_hash(file) != before


def test_a_touch_changes_nothing_and_reads_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc")
    before = content_hash.cached_hash(file)
    content_hash.save_cache()
    monkeypatch.setattr(content_hash, "_digest_cache", Cache(content_hash.CACHE))

    def never(_: Path) -> str:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr(content_hash, "hash_file", never)
        assert content_hash.cached_hash(file) == before
    os.utime(file, (1, 1))
    assert content_hash.cached_hash(file) == before


def test_a_large_compressed_file_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_hash, "READ_WHOLE", 1000)
    monkeypatch.setattr(content_hash, "BLOCK", 16)
    body = bytearray(os.urandom(20_000))
    for name, whole in (("a.gz", False), ("a.warc", True)):
        file = tmp_path / name
        file.write_bytes(body)
        before = content_hash.hash_file(file)
        for place in (0, 19_999):
            other = bytearray(body)
            other[place] ^= 1
            file.write_bytes(other)
            assert content_hash.hash_file(file) != before
        file.write_bytes(body[:-1])
        assert content_hash.hash_file(file) != before
        assert ("~" in before) != whole


def test_a_damaged_cache_is_no_cache(tmp_path: Path) -> None:
    content_hash.CACHE.parent.mkdir()
    content_hash.CACHE.write_text("{")
    (tmp_path / "a").write_text("x")
    assert content_hash.cached_hash(tmp_path / "a") == content_hash.hash_file(tmp_path / "a")


def test_what_a_task_names(tmp_path: Path) -> None:
    for name in ("data.jsonl", "helpers.py", "base.yaml", "bystander.jsonl"):
        (tmp_path / name).write_text(
            "" if name != "base.yaml" else "dataset_kwargs: {data_files: {test: data.jsonl}}\n"
        )
    task = tmp_path / "task.yaml"
    task.write_text("include: base.yaml\nprocess_docs: !function helpers.clean\ntask: mine\n")
    names = [path.name for path in content_hash.files_named_by(task)]
    assert names == ["base.yaml", "data.jsonl", "helpers.py", "task.yaml"]
    assert content_hash.files_named_by(tmp_path / "data.jsonl") == [tmp_path / "data.jsonl"]


def test_an_include_is_followed_whatever_it_is_called_and_a_function_brings_the_modules_beside_it(
    tmp_path: Path,
) -> None:
    """Most of lm-evaluation-harness's own tasks include files such as `_default_template_yaml`."""
    (tmp_path / "sub").mkdir()
    for name in ("sub/steps.py", "sub/words.py", "other.py", "data.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "_base").write_text("data_files: data.jsonl\nprocess_docs: !function sub.steps.clean\n")
    (tmp_path / "task.yaml").write_text("include: _base\n")
    names = [path.relative_to(tmp_path).as_posix() for path in content_hash.files_named_by(tmp_path / "task.yaml")]
    assert names == ["_base", "data.jsonl", "sub/steps.py", "sub/words.py", "task.yaml"]


@pytest.mark.parametrize(
    "data",
    [
        "data_files: {test: data/*.jsonl}",
        "data_files: {test: 'data/**/*.jsonl'}",
        "data_dir: data",
        "dataset_path: ./data",
    ],
)
def test_a_task_names_data_by_a_pattern_or_a_folder(tmp_path: Path, data: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text("{}\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test/other.txt").write_text("a folder that happens to be called as the split is")
    task = tmp_path / "task.yaml"
    task.write_text(f"task: own\ntest_split: test\ndoc_to_text: 'Is it [{{{{a}}}}]?'\n{data}\n")
    assert [path.name for path in content_hash.files_named_by(task)] == ["a.jsonl", "task.yaml"]


def test_what_lies_in_a_linked_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "store/adult").mkdir(parents=True)
    (tmp_path / "store/adult/domains").write_text("bad.com")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/adult").symlink_to(tmp_path / "store/adult")
    (tmp_path / "store/adult/loop").symlink_to(tmp_path / "lists")
    assert [path.name for path in content_hash.files_below(tmp_path / "lists")] == ["domains"]
    assert content_hash.files_below(tmp_path / "lists/adult/domains") == [tmp_path / "lists/adult/domains"]


def test_what_a_file_imports_of_packages_beside_it(tmp_path: Path) -> None:
    inside = {
        "pkg/__init__.py": "from .inner import X",
        "pkg/inner.py": "import help",
        "pkg/deep/more.py": "",
        "help.py": "import json",
    }
    for name, text in {**inside, "mine.py": "from pkg.inner import X", "other.py": "", "json/none.txt": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert content_hash.imported_files(tmp_path / "mine.py") == sorted(tmp_path / name for name in [*inside, "mine.py"])


def test_the_manifests_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no manifests in it"):
        content_hash.manifests_in(tmp_path / "nowhere")
    for name in ("00001.manifest.json", "00000.manifest.json", "00000.parquet", ".00000.manifest.copy"):
        (tmp_path / name).touch()
    assert content_hash.manifests_in(tmp_path) == [tmp_path / "00000.manifest.json", tmp_path / "00001.manifest.json"]
