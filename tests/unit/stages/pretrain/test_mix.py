"""pretrain.mix and what reads its result: groups of the training text, their windows, documents, and a training with them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.pretrain import mix
from crawl2llm.stages.pretrain import plan as plan_step
from crawl2llm.training import data, mix_reader, schedule
from crawl2llm.training.packed_windows import read_totals
from crawl2llm.training.pretraining_settings import ResolvedSettings
from crawl2llm.training.stream_documents import document_ids
from tests.unit.stages.pretrain.conftest import TINY, write_indexed
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.training.typed import train_settings

CONTEXT = 8
LANGUAGES = ("de", "en", "fr")
Document = dict[str, Any]


def corpus(folder: Path, seed: int = 0) -> tuple[list[Path], list[Path], list[Path], list[Document]]:
    """(manifests of tokenize.encode, of language.score, of quality.score, the training documents in the stream's order).

    Three shards of the sources books and web; token ids are 1 + a document's number, 0 ends it. Validation documents have ids from 40,000.
    """
    pick, encoded, languages, qualities, out = random.Random(seed), [], [], [], list[Document]()  # noqa: S311
    for shard in ("00000", "00001", "00002"):
        files, signals = [], list[Document]()
        for split in ("train", "validation"):
            for source in ("books", "web") if shard != "00001" else ("web",):
                made = []
                for _ in range(pick.randint(30, 60)):
                    number, size = len(out) + len(signals), pick.randint(1, 20)
                    token = number + 1 if split == "train" else 40_000 + number
                    language = pick.choices((*LANGUAGES, None), (1, 6, 2, 0.3))[0]
                    score = pick.random() if pick.random() > 0.05 else None
                    made.append(
                        {
                            "id": f"{split}-{shard}-{number}",
                            "tokens": [token] * size + [0],
                            "source": source,
                            "language": language,
                            "score": score,
                        }
                    )
                    signals.append(made[-1])
                stem = folder / "encode" / split / source / shard
                write_indexed(stem, [document["tokens"] for document in made])
                sizes = [len(document["tokens"]) for document in made]
                table = {
                    "id": [document["id"] for document in made],
                    "offset": [sum(sizes[:n]) for n in range(len(made))],
                    "tokens": sizes,
                    "bytes": sizes,
                }
                pq.write_table(pa.table(table), stem.with_suffix(".docs.parquet"))
                files += [stem.with_suffix(suffix) for suffix in (".bin", ".idx", ".docs.parquet")]
                out += made if split == "train" else []
        total = sum(len(document["tokens"]) for document in signals if document["id"].startswith("train"))
        encoded.append(folder / "encode" / f"{shard}.manifest.json")
        Manifest("tokenize.encode", "test", summary={"train": {"tokens": total}}).write(encoded[-1], files)
        pick.shuffle(signals)  # rows of signals are in the order of the crawl, not in that of the corpus
        for step, key, found in (("language", "language", languages), ("quality", "score", qualities)):
            path = folder / step / f"{shard}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({name: [row[name] for row in signals] for name in ("id", key)}), path)
            found.append(folder / step / f"{shard}.manifest.json")
            Manifest(f"{step}.score", "test").write(found[-1], [path])
    return encoded, languages, qualities, out


Drawn = Callable[..., tuple[dict[str, Any], mix_reader.MixReader, schedule.Plan]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path], list[Path], list[Document]]:
    return corpus(tmp_path_factory.mktemp("corpus"))


def draw(
    folder: Path,
    whole: tuple[Any, ...],
    by: str,
    *phases: dict[str, Any],
    steps: int = 60,
    packing: str = "stream",
    **more: Any,
) -> tuple[dict[str, Any], mix_reader.MixReader, schedule.Plan]:
    """(the step's summary, what a training reads, the plan of that training) of a mix of a `corpus`, whose manifest is below `folder`."""
    encoded, languages, qualities, _ = whole
    tokenizer, file = folder / "tokenizer/manifest.json", folder / "config.yaml"
    Manifest("tokenize.train", "test", summary={"vocabulary": 2048}).write(tokenizer, [])
    train = {"model": {"context": CONTEXT}, "global_batch_tokens": 4 * CONTEXT, "steps": steps, "epochs": None}
    train["packing"] = packing
    section, out = {"by": by, "phases": list(phases), **more}, folder / "pretrain/mix/manifest.json"
    file.write_text(json.dumps({"pretrain": {"mix": section, "train": train}}))
    signals = {"source": [], "language": languages, "quality": qualities}[by]
    words = ["--tokens", *map(str, encoded), "--tokenizer", str(tokenizer), "--signals", *map(str, signals)]
    assert mix.main(["--config", str(file), "--manifest", str(out), *words]) == 0
    stream = data.open_split(encoded, "train")
    windows = read_totals([out], CONTEXT)["windows"] if packing == "best_fit" else None
    plan = schedule.make_plan(cast(ResolvedSettings, train_settings(**train)), len(stream), windows)
    return Manifest.read(out).summary, mix_reader.MixReader(out, stream, plan, 0, packing), plan


@pytest.fixture
def drawn(whole: tuple[Any, ...], tmp_path: Path) -> Drawn:
    """drawn(by, phases, steps): see `draw`."""
    return partial(draw, tmp_path, whole)


def group_of(by: str, document: Document, summary: dict[str, Any]) -> str:
    """The group of a document."""
    if by != "quality":
        return str(document["source"] if by == "source" else document["language"] or "unknown")
    above = sum((document["score"] or 0) * (1 << 16) // 1 >= border * (1 << 16) for border in summary["borders"])
    return "unscored" if document["score"] is None else f"q{1 + above}"


def groups_of(by: str, documents: list[Document], summary: dict[str, Any]) -> dict[str, list[int]]:
    """The tokens of each group, packed in the stream's order: by a plain loop."""
    found: dict[str, list[int]] = {}
    for document in documents:
        found.setdefault(group_of(by, document, summary), []).extend(document["tokens"])
    return found


@pytest.mark.parametrize("by", ["source", "language", "quality"])
def test_windows_are_those_of_a_group_packed_by_itself(drawn: Drawn, whole: Any, by: str) -> None:
    summary, found, plan = drawn(by, {"temperature": 2}, max_epochs=1000, steps=200)
    documents, read = whole[3], found.order.windows_at(0, 800)
    expected = groups_of(by, documents, summary)
    assert list(expected.keys() - {"unscored"}) and sorted(expected) == found.names == list(summary["groups"])
    tokens, held_out = found.read(read.reshape(4, 200)).reshape(800, CONTEXT + 1), 40_000
    assert tokens.max() < held_out, "no token of a validation document"
    for window, group, row in zip(read.tolist(), found.order.group_of(read).tolist(), tokens.tolist(), strict=True):
        place = (window - int(found.order.bases[group])) * CONTEXT
        assert row == expected[found.names[group]][place : place + CONTEXT + 1]
    for name, text in expected.items():
        assert summary["groups"][name]["tokens"] == len(text)
    counts = np.bincount(found.order.group_of(read), minlength=len(found.names)) * CONTEXT
    assert {name: int(n) for name, n in zip(found.names, counts, strict=True)} == {
        name: each["trained"] for name, each in summary["groups"].items()
    }
    assert plan.tokens_until(200) == counts.sum() == summary["tokens"]


@pytest.mark.parametrize("by", ["source", "language", "quality"])
def test_windows_of_a_group_are_packed_by_best_fit(drawn: Drawn, whole: Any, by: str, tmp_path: Path) -> None:
    summary, found, plan = drawn(by, {"temperature": 2}, max_epochs=1000, steps=200, packing="best_fit")
    documents, read = whole[3], found.order.windows_at(0, 800)
    tokens = found.read(read.reshape(4, 200)).reshape(800, CONTEXT + 1)
    ends = np.cumsum([len(document["tokens"]) for document in documents])
    for window, group, row in zip(read.tolist(), found.order.group_of(read).tolist(), tokens.tolist(), strict=True):
        text: list[int] = []
        for start, size in (pieces := list(found.window_pieces(window))):
            number = int(np.searchsorted(ends, start, side="right"))
            document, place = documents[number], start - int(ends[number]) + len(documents[number]["tokens"])
            assert group_of(by, document, summary) == found.names[group]
            text += document["tokens"][place : place + size]
            whole_or_rest = place % CONTEXT == 0 and place + size == len(document["tokens"])
            assert whole_or_rest or size == CONTEXT or (place, start) == (0, pieces[-1][0]), "or what fills the window"
        assert row[1:] == text and row[0] in (0, row[1])
    totals = plan_step.packing_totals([tmp_path / "pretrain/mix/manifest.json"], CONTEXT)
    assert totals["documents"] == len(documents) and totals["tokens"] == ends[-1]
    assert totals["windows"] == plan.windows == found.order.sizes.sum()
    with pytest.raises(mix_reader.InputError, match=r"another pretrain\.train\.packing than stream"):
        mix_reader.MixReader(tmp_path / "pretrain/mix/manifest.json", data.open_split(whole[0], "train"), plan, 0)


def test_packed_groups_that_are_all_smaller_than_a_window_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoded, tokenizer = tmp_path / "00000.manifest.json", tmp_path / "tokenizer/manifest.json"
    stems = [tmp_path / f"train/{source}/00000" for source in ("books", "web")]
    for stem in stems:
        write_indexed(stem, [[1] * CONTEXT])
        pq.write_table(pa.table({"id": ["a"], "offset": [0], "tokens": [CONTEXT]}), stem.with_suffix(".docs.parquet"))
    files = [stem.with_suffix(suffix) for stem in stems for suffix in (".bin", ".idx", ".docs.parquet")]
    Manifest("tokenize.encode", "test", summary={"train": {"tokens": 2 * CONTEXT}}).write(encoded, files)
    Manifest("tokenize.train", "test", summary={"vocabulary": 2048}).write(tokenizer, [])
    train = {"model": {"context": CONTEXT}, "global_batch_tokens": CONTEXT, "steps": 1, "packing": "best_fit"}
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"pretrain": {"mix": {"phases": [{"temperature": 2}]}, "train": train}}))
    words = ["--tokens", str(encoded), "--tokenizer", str(tokenizer), "--manifest", str(tmp_path / "mix/manifest.json")]
    assert mix.main(["--config", str(file), *words]) != 0
    assert "no group of pretrain.mix.by has the 9 tokens of a window: books, web" in capsys.readouterr().err


def test_buckets_of_quality_have_as_many_tokens_and_rising_scores(drawn: Drawn, whole: Any) -> None:
    summary, _, _ = drawn("quality", {"shares": {"q4": 0.4}}, buckets=4)
    sizes = [summary["groups"][f"q{number}"]["tokens"] for number in range(1, 5)]
    assert max(sizes) - min(sizes) <= 2 * 21, "a document more or less"
    assert summary["borders"] == sorted(summary["borders"]) and "unscored" in summary["groups"]


@pytest.mark.parametrize("by", ["source", "language"])
def test_documents_of_windows(drawn: Drawn, whole: Any, by: str) -> None:
    _, found, _ = drawn(by, {"temperature": 1})
    for windows in (found.order.windows_at(0, 12), found.order.windows_at(7, 1), np.array([0, 1, 2])):
        pieces = [piece for window in windows.tolist() for piece in found.window_pieces(window)]
        places = {start + n for start, size in pieces for n in range(size)}
        expected, place = [], 0
        for document in whole[3]:
            if places & set(range(place, place + len(document["tokens"]))):
                expected.append(document["id"])
            place += len(document["tokens"])
        assert document_ids(whole[0], found.places(windows)) == expected and expected


def test_the_summary_says_what_a_share_means_in_epochs(drawn: Drawn) -> None:
    summary, found, _ = drawn("source", {"until": 0.5, "shares": {"books": 0.75}}, {"epochs": {"books": 2}}, steps=80)
    assert [phase["steps"] for phase in summary["phases"]] == [[1, 40], [41, 80]]
    for number, name in enumerate(found.names):
        windows = int(found.order.sizes[number])
        parts = [phase["groups"][name] for phase in summary["phases"]]
        assert sum(part["epochs"] for part in parts) == pytest.approx(
            summary["groups"][name]["epochs"], abs=2 / windows
        )
    assert summary["phases"][0]["groups"]["books"]["share"] == 0.75
    second = {name: part["epochs"] for name, part in summary["phases"][1]["groups"].items()}
    assert second["books"] / second["web"] == pytest.approx(2, rel=0.05)  # windows, of which a group has whole ones
    away = summary["deviation"]
    assert away["largest"] * away["windows"] < 1 and away["windows"] > 40 and not summary["held"], "less than a window"


def test_a_training_of_another_length_is_refused(drawn: Drawn, whole: Any, tmp_path: Path) -> None:
    drawn("source", {"temperature": 1})
    stream = data.open_split(whole[0], "train")
    for plan in (schedule.Plan(61, 4, CONTEXT, 99), schedule.Plan(60, 4, 16, 99)):
        with pytest.raises(mix_reader.InputError, match=r"run pretrain\.mix again"):
            mix_reader.MixReader(tmp_path / "pretrain/mix/manifest.json", stream, plan, 0)


@pytest.fixture
def two_phases(sourced: list[Path], tmp_path: Path, request: pytest.FixtureRequest) -> tuple[list[Path], Path, Any]:
    """(manifests of the two shards of `sourced`, with their tokens, that of a mix of them for the training TINY, with which changes).

    The parameter is those changes.

    Books are 80 % until half of the tokens, then 20 %.
    """
    folder = tmp_path / "encode"
    shutil.copytree(sourced[0].parent, folder)
    encoded = [folder / path.name for path in sourced]
    for path in encoded:
        files = [path.parent / name for name in Manifest.read(path).files]
        size = sum(file.stat().st_size // 2 for file in files if file.match("train/*/*.bin"))
        Manifest("tokenize.encode", "test", summary={"train": {"tokens": size}}).write(path, files)
    tokenizer, out = tmp_path / "tokenizer/manifest.json", tmp_path / "mix/manifest.json"
    Manifest("tokenize.train", "test", summary={"vocabulary": 300}).write(tokenizer, [])
    phases = [{"until": 0.5, "shares": {"books": 0.8}}, {"shares": {"books": 0.2}}]
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"pretrain": {"mix": {"phases": phases}, "train": TINY | request.param}}))
    words = ["--tokens", *map(str, encoded), "--tokenizer", str(tokenizer)]
    assert mix.main(["--config", str(file), "--manifest", str(out), *words]) == 0
    return encoded, out, request.param


@pytest.mark.slow
@pytest.mark.parametrize(
    "two_phases",
    [
        {"engine": "torch"},
        pytest.param({"engine": "deepspeed"}, marks=pytest.mark.long),
        pytest.param({"engine": "torch", "packing": "best_fit"}, marks=pytest.mark.long),
    ],
    indirect=True,
    ids=str,
)
def test_a_training_reads_the_mix_and_resumes_in_it(
    start: Any, tmp_path: Path, two_phases: tuple[list[Path], Path, Any]
) -> None:
    """Two processes; killed in the second phase and resumed: the same bytes. One process, and other micro-batches: the same windows."""
    encoded, mixed_, changes = two_phases
    option = ("--mix", str(mixed_))
    whole, killed, alone, plain = (tmp_path / name for name in ("whole", "killed", "alone", "plain"))
    finish(start(whole, 2, changes, *option, tokens=encoded))
    process = start(killed, 2, changes, *option, tokens=encoded)
    wait_for(process, killed, "checkpoints/*/step-000015")
    kill(process)
    finish(start(killed, 2, changes, *option, tokens=encoded))
    same(whole, killed)
    read = [row[mix_reader.ROW] for row in rows(whole / "out/losses.jsonl") if "loss" in row]
    assert [sum(row.values()) for row in read] == [256] * 24
    own = np.cumsum([row.get("books", 0) for row in read])
    wanted = np.cumsum([256 * 0.8] * 12 + [256 * 0.2] * 12)
    assert np.abs(own - wanted).max() <= 2 * 32, "two windows"
    summary = json.loads((whole / "out/manifest.json").read_text())["summary"]
    assert summary["by_group"]["books"]["tokens"] == own[-1] and sum(
        each["share"] for each in summary["by_group"].values()
    ) == pytest.approx(1)
    finish(start(alone, 1, changes, *option, "--micro-batch", "4", tokens=encoded))
    losses = [[row["loss"] for row in rows(folder / "out/losses.jsonl") if "loss" in row] for folder in (whole, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert [row[mix_reader.ROW] for row in rows(alone / "out/losses.jsonl") if "loss" in row] == read
    finish(start(plain, 2, {**changes, "packing": "stream"}, tokens=encoded))
    checkpoints = [next(folder.glob("checkpoints/*")).name for folder in (whole, alone, plain)]
    assert checkpoints[0] == checkpoints[1] != checkpoints[2], "named by what decides the weights"
    assert not any(mix_reader.ROW in row for row in rows(plain / "out/losses.jsonl"))
