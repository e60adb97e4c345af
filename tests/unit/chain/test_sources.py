"""Which files a run reads, and which shard reads which."""

from __future__ import annotations

import os
from collections import Counter
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import sources
from crawl2llm.chain.config import validate
from crawl2llm.core.errors import ConfigError


def config(*given: dict[str, Any], shards: int = 2, data: str = ".") -> dict[str, Any]:
    return validate({"data": data, "ingest": {"extract": {"shards": shards, "sources": list(given)}}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.warc.gz", "a.warc.gz", "deep/c.warc.gz", "[odd].warc", "x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "wrong.txt").write_text(f"# files\n{tmp_path}/x.txt\ngone.warc.gz\n")
    (tmp_path / "list.txt").write_text(f"# files\n{tmp_path}/x.txt\n\n  {tmp_path}/a.warc.gz\n")
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["{data}/*.warc.gz"], ["a.warc.gz", "b.warc.gz"]),
        (["{data}/**/*.warc.gz"], ["a.warc.gz", "b.warc.gz", "deep/c.warc.gz"]),
        (["{data}/d*/*.warc.gz"], ["deep/c.warc.gz"]),
        (["{data}/deep/*.gz"], ["deep/|c.warc.gz"]),
        (["{data}/x.txt"], ["x.txt"]),
        (["{data}/deep/c.warc.gz"], ["deep/|c.warc.gz"]),
        (["{data}/deep/*.gz", "{data}/x.txt"], ["deep/|c.warc.gz", "x.txt"]),
        (["{data}/deep/*.gz", "{data}/wide/*.gz"], ["deep/|c.warc.gz", "wide/c.warc.gz"]),
        (["{data}/wide/*.gz", "{data}/deep/*.gz"], ["wide/|c.warc.gz", "deep/c.warc.gz"]),
        (["{data}/*.gz", "{data}/**/*.gz", "{data}//deep/../a.warc.gz"], ["a.warc.gz", "b.warc.gz", "deep/c.warc.gz", "wide/c.warc.gz"]),
        (["{data}/deep/*.gz", "{data}/**/*.gz"], ["a.warc.gz", "b.warc.gz", "deep/|c.warc.gz", "wide/c.warc.gz"]),
        (["{data}/[odd].warc"], ["[odd].warc"]),
        (["@{data}/list.txt"], ["a.warc.gz", "x.txt"]),
        (["@{data}/list.txt", "{data}/deep/*"], ["a.warc.gz", "deep/|c.warc.gz", "x.txt"]),
    ],
)  # fmt: skip
def test_files_are_named_below_the_folder_of_the_entry_that_finds_them(
    folder: Path, patterns: list[str], names: list[str]
) -> None:
    """`|` marks where a name begins that is shorter than the path below `data`."""
    if "wide" in str([patterns, names]):
        (folder / "wide").mkdir()
        (folder / "wide/c.warc.gz").write_text("")
    for data in (str(folder), f"{folder}/"):
        found = sources.files_of_source({"name": "a", "kind": "warc", "paths": patterns}, data, "here")
        assert {sources.path_of(entry): sources.name_of(entry) for entry in found} == {
            str(folder / name.replace("|", "")): name.split("|")[-1] for name in names
        }
        assert found == sorted(found, key=sources.name_of)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "a/", "b/"]), st.sampled_from("xyz")), min_size=1),
    st.data(),
)
def test_an_entry_at_the_end_renames_no_file(files: list[tuple[str, str, str]], data: st.DataObject) -> None:
    with TemporaryDirectory() as temporary:
        for parts in files:
            path = Path(temporary, *parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        globs = st.sampled_from([f"{temporary}/{parts[0]}/{deep}" for parts in files for deep in ("**/*", "?")])
        patterns = [
            pattern for pattern in data.draw(st.lists(globs, min_size=2)) if sources.files_of_entry(pattern, ".")
        ]
        names: dict[str, str] = {}
        for number in range(1, len(patterns) + 1):
            source = {"name": "a", "kind": "text", "paths": patterns[:number]}
            found = {
                sources.path_of(entry): sources.name_of(entry) for entry in sources.files_of_source(source, ".", "here")
            }
            assert found.items() >= names.items() and len(set(found.values())) == len(found)
            names = found


def test_names_and_shards_stay_when_the_data_are_moved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "list.txt").write_text("{data}/x.txt\n# a comment\n  {data}/deep/c.warc.gz\n")
    given = [
        {"name": "globs", "kind": "warc", "paths": ["{data}/**/*.warc.gz", "{data}/b.warc.gz"]},
        {"name": "list", "kind": "text", "paths": ["@{data}/list.txt"]},
        {"name": "one", "kind": "text", "paths": ["{data}/x.txt"]},
    ]
    before = sources.files_by_shard(config(*given, data=str(folder), shards=3))
    moved = folder.rename(tmp_path_factory.mktemp("elsewhere") / "moved")
    after = sources.files_by_shard(config(*given, data=str(moved), shards=3))

    def plain(shards: dict[str, list[str]]) -> dict[str, list[tuple[str, str]]]:
        return {shard: [(e.split("=")[0], sources.name_of(e)) for e in entries] for shard, entries in shards.items()}

    assert plain(before) == plain(after) and before != after
    assert {shard: sources.content_digest(entries) for shard, entries in after.items()} == {
        shard: sources.content_digest([entry.replace(str(folder), str(moved)) for entry in entries])
        for shard, entries in before.items()
    }


def test_paths_relative_to_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "deep")
    for patterns, wanted in (
        (["c.warc.gz"], ["./c.warc.gz"]),
        (["*.gz"], ["./c.warc.gz"]),
        (["../*.gz", str(folder / "a.warc.gz")], ["../a.warc.gz", "../b.warc.gz"]),
    ):
        found = sources.files_of_source({"name": "a", "kind": "warc", "paths": patterns}, ".", "here")
        assert [entry.replace("/./", "/") for entry in found] == wanted
        assert all(Path(sources.path_of(entry)).is_file() for entry in found)


def test_a_line_more_in_a_list_renames_no_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Below `data`, beside the list, or anywhere: each file for itself."""
    other, third = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("third")
    for path in (other / "y/b.txt", third / "c.txt"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    names: list[str] = []
    for line in (folder / "deep/c.warc.gz", other / "y/b.txt", third / "c.txt"):
        with (other / "list.txt").open("a") as handle:
            handle.write(f"{line}\n")
        made = sources.input_files(
            config({"name": "a", "kind": "warc", "paths": [f"@{other}/list.txt"]}, data=str(folder))
        )
        found = [sources.name_of(marked) for _, marked in made]
        assert set(names) < set(found) and [Path(sources.path_of(marked)).is_file() for _, marked in made]
        names = found
    assert set(names) == {"deep/c.warc.gz", "y/b.txt", str(third / "c.txt")[1:]}


def test_an_edited_list_is_another_plan(folder: Path) -> None:
    made = config({"name": "a", "kind": "warc", "paths": ["@{data}/list.txt"]}, data=str(folder))
    before = sources.input_files(made)
    with (folder / "list.txt").open("a") as handle:
        handle.write(f"{folder}/b.warc.gz\n")
    assert {named for _, named in sources.input_files(made)} - {named for _, named in before} == {
        f"{folder}/./b.warc.gz"
    }
    (folder / "list.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"sources\[0\].paths: the list .*list.txt: 'utf-8' codec"):
        sources.input_files(made)


def test_sources_keep_their_order_within_a_shard(folder: Path) -> None:
    made = config(
        {"name": "late", "kind": "warc", "paths": ["{data}/b.warc.gz", "{data}/a.warc.gz"]},
        {"name": "demo", "kind": "crawl"},
        {"name": "early", "kind": "text", "paths": ["{data}/x.txt"]},
        data=str(folder),
        shards=1,
    )
    assert sources.files_by_shard(made) == {
        "00000": [f"late={folder}/./a.warc.gz", f"late={folder}/./b.warc.gz", f"early={folder}/./x.txt"],
    }


NAMES = st.lists(st.text(max_size=6), unique=True, max_size=300)


def loads(names: list[str], shards: int) -> list[int]:
    count = Counter(sources.spread_over_shards(names, shards).values())
    return [count[shard] for shard in range(shards)]


@given(NAMES, st.integers(1, 40), st.randoms())
def test_spread_is_balanced_and_does_not_see_the_order(names: list[str], shards: int, random: Random) -> None:
    found = sources.spread_over_shards(names, shards)
    assert set(found) == set(names) and all(0 <= shard < shards for shard in found.values())
    random.shuffle(names)
    assert sources.spread_over_shards(names, shards) == found
    mean = len(names) / shards
    most = max(loads(names, shards))
    assert most <= (1.25 * mean if mean >= 4 else ceil(26 * len(names) // 25 / shards))


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 7, 8, 16, 64])
def test_no_shard_has_more_than_a_quarter_above_the_mean(shards: int) -> None:
    for count in range(4 * shards, 24 * shards, max(1, shards // 5)):
        assert max(loads([f"{number}.warc.gz" for number in range(count)], shards)) <= 1.25 * count / shards


@pytest.mark.parametrize(
    ("count", "shards", "few"), [(40, 8, 5), (100, 16, 6), (1000, 64, 3), (2000, 100, 2.5), (10_000, 1000, 4), (1000, 1000, 9)]
)  # fmt: skip
def test_one_file_more_or_less_moves_few_others(count: int, shards: int, few: float) -> None:
    """On average over 10 files that come one after the other; to go is the same the other way round."""
    names = [f"segments/{number * 7919}/warc/CC-{number:05d}.warc.gz" for number in range(count)]
    before, changed = sources.spread_over_shards(names, shards), []
    for number in range(10):
        names.append(f"segments/new/{number}.warc.gz")
        after = sources.spread_over_shards(names, shards)
        changed.append(
            len(
                {s for name in names if before.get(name) != after[name] for s in (before.get(name), after[name])}
                - {None}
            )
        )
        before = after
    assert sum(changed) / 10 <= few, changed


def test_a_common_crawl_dump_is_spread_in_seconds() -> None:
    began = process_time()
    names = [
        f"crawl-data/CC-MAIN-2026-01/segments/{number % 100}/warc/{number:05d}.warc.gz" for number in range(90_000)
    ]
    assert max(loads(names, 1000)) <= 1.25 * 90
    assert process_time() - began < 10


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"name": "a", "kind": "warc", "paths": ["{data}/*.zip"]}], ["sources[0].paths", "'{data}/*.zip'", "no file"]),
        (
            [{"name": "a", "kind": "warc", "paths": ["crawl/*.warc.gz"]}],
            [
                "no file matches 'crawl/*.warc.gz' (a relative path is looked for in the folder of the run, ",
                "name the absolute path",
            ],
        ),
        ([{"name": "a", "kind": "text", "paths": ["@absent.txt"]}], ["no such file (a relative path is looked for in"]),
        ([{"name": "a", "kind": "warc"}], ["sources[0] (a) needs `paths`", "kind warc"]),
        ([{"name": "a", "kind": "text", "paths": ["@absent.txt"]}], ["sources[0].paths", "the list absent.txt"]),
        (
            [{"name": "a", "kind": "text", "paths": ["@{data}/wrong.txt"]}],
            [
                "wrong.txt, line 3: no such file 'gone.warc.gz' (a relative path is looked for in the folder of the run, "
            ],
        ),
        (
            [{"name": "a", "kind": "text", "paths": ["x.txt"], "preset": "pile"}],
            ["sources[0].preset is 'pile'", "`code`"],
        ),
        (
            [{"name": "a", "kind": "text", "paths": ["x.txt"], "preset": "code", "unwrap": True}],
            ["sources[0].unwrap", "`preset: code`"],
        ),
        ([{"name": "a", "kind": "crawl"}, {"name": "a", "kind": "crawl"}], ["sources[1].name", "called already"]),
    ],
)
def test_refused_with_the_place_in_the_config(folder: Path, given: list[dict[str, Any]], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        sources.input_files(config(*given, data=str(folder)))
    assert all(word in str(caught.value) for word in words), caught.value


def test_content_changes_with_the_file_and_not_with_its_age(tmp_path: Path) -> None:
    path, named = tmp_path / "a", [f"x={tmp_path}/a"]
    body = bytearray(os.urandom(20_000))
    path.write_bytes(body)
    before = sources.content_digest(named)
    os.utime(path, (1, 1))
    assert sources.content_digest(named) == before
    seen = {before, sources.content_digest([]), sources.content_digest([f"y={path}"])}
    for change in (0, 19_999):
        body[change] ^= 1
        path.write_bytes(body)
        seen.add(sources.content_digest(named))
    path.write_bytes(bytes(body) + b"x")
    seen.add(sources.content_digest(named))
    assert len(seen) == 6
    path.unlink()
    with pytest.raises(ConfigError, match="input file of source 'x'"):
        sources.content_digest(named)


def names_of(patterns: list[str], data: Path, **more: Any) -> list[str]:
    found = sources.files_of_source({"name": "a", "kind": "warc", "paths": patterns, **more}, str(data), "here")
    return [sources.name_of(entry) for entry in found]


def test_one_file_by_two_links_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.warc").write_text("words")
    (tmp_path / "a.warc").symlink_to("b.warc")
    (tmp_path / "c.warc").hardlink_to(tmp_path / "b.warc")
    (tmp_path / "deep/d.warc").symlink_to("../b.warc")
    (tmp_path / "other.warc").write_text("words")  # the same bytes in another file
    (tmp_path / "folder").symlink_to("deep")
    assert names_of(["{data}/**/*.warc"], tmp_path) == ["b.warc", "other.warc"], "by what is no symbolic link"
    assert names_of(["{data}/a.warc"], tmp_path) == ["a.warc"]
    assert names_of(["{data}/a.warc", "{data}/*.warc"], tmp_path) == ["a.warc", "other.warc"], (
        "the first entry names it"
    )
    assert names_of(["{data}/folder/*", "{data}/deep/*"], tmp_path, follow_links=True) == ["d.warc"]
    (tmp_path / "list.txt").write_text(f"{tmp_path}/c.warc\n{tmp_path}/a.warc\n{tmp_path}/other.warc\n")
    assert names_of(["@{data}/list.txt"], tmp_path) == ["c.warc", "other.warc"]


def test_two_files_with_one_inode_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.warc", "b.warc"):
        (tmp_path / name).write_text(f"words of {name}" if name == "a.warc" else "other words")
    (tmp_path / "c.warc").hardlink_to(tmp_path / "b.warc")
    stat = os.stat

    def remote(path: Any, **options: Any) -> os.stat_result:
        """As of a network file system that makes inodes up."""
        facts = stat(path, **options)
        return os.stat_result((facts.st_mode, 7, *facts[2:]), {"st_mtime_ns": facts.st_mtime_ns})

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", remote)
        found = names_of(["{data}/*.warc"], tmp_path)
    assert found == ["a.warc", "b.warc"]


def test_a_file_that_two_sources_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "b.jsonl").write_text("{}")
    (tmp_path / "a.jsonl").symlink_to("b.jsonl")
    both = [{"name": name, "kind": "jsonl", "paths": [f"{{data}}/{name}.jsonl"]} for name in "ab"]
    assert [source for source, _ in sources.input_files(config(*both, data=str(tmp_path)))] == ["a", "b"]
    assert f"files that two sources read: 1, such as {tmp_path}/b.jsonl by a and b" in caplog.text
    caplog.clear()
    sources.input_files(config(both[0], data=str(tmp_path)))
    assert not caplog.text


def test_a_link_takes_no_pattern_out_of_its_folder(tmp_path: Path) -> None:
    """A folder of somebody else's may hold links to what is mine."""
    data, mine = tmp_path / "data", tmp_path / "mine"
    (data / "in/deep").mkdir(parents=True)
    mine.mkdir()
    (mine / "secret.jsonl").write_text("{}\n")
    (data / "in/a.jsonl").write_text("{}\n{}\n")
    (data / "in/deep/b.jsonl").symlink_to("../a.jsonl")
    (data / "in/here").symlink_to("deep")
    (tmp_path / "to data").symlink_to("data")

    def found(pattern: str, **more: Any) -> list[str]:
        source = {"name": "web", "kind": "jsonl", "paths": [pattern], **more}
        return [sources.name_of(one) for one in sources.files_of_source(source, str(tmp_path / "to data"), "here")]

    assert found("{data}/in/**/*.jsonl") == ["a.jsonl"], "links inside the folder, and one to the folder itself"
    for link, target in (
        ("in/deep/c.jsonl", mine / "secret.jsonl"),
        ("in/out", mine),
        ("in/deep/e.jsonl", "../../../mine/secret.jsonl"),
    ):
        (data / link).symlink_to(target)
        with pytest.raises(
            ConfigError, match=r"here\.paths: .* symbolic link takes to .*/mine/secret.jsonl: .* follow_links: true"
        ):
            found("{data}/in/**/*.jsonl")
        assert len(found("{data}/in/**/*.jsonl", follow_links=True)) == 2
        name = link if link.endswith("jsonl") else f"{link}/secret.jsonl"
        assert found(f"{data}/{name}") == [Path(name).name], "a file that is named is wanted"
        (data / link).unlink()
