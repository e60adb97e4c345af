"""A model behind an endpoint as judge of answers that preferences are made of: the project's own server, and one that fails in between."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core import endpoint
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.align import pairs
from crawl2llm.stages.align.endpoint import KEY, EndpointJudge
from crawl2llm.stages.align.pairs import read_rows
from crawl2llm.stages.align.settings import PairsJudge
from tests.unit.commands.serve.test_app import address, results  # noqa: F401 - fixtures: a real server of two tiny models
from tests.unit.stages.evaluate.endpoints import says, serving  # noqa: F401 - the fixture `served`
from tests.unit.stages.finetune import tiny

DRAWN = {"from": "base", "rewards": [{"reward": "endpoint"}], "answers": 3, "max_new_tokens": 6, "threads": 1}
PLACED = {"key": None, "requests": 4, "attempts": 2, "seconds": 5.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SLEEP", 0.01)


@pytest.fixture(scope="module")
def few(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of finetune.pairs with a few of its questions."""
    folder = tmp_path_factory.mktemp("few")
    files = []
    for name, many in (("train.jsonl", 10), ("heldout.jsonl", 4)):
        lines = (questions.parent / name).read_text().splitlines(keepends=True)[:many]
        (folder / name).write_text("".join(lines))
        files.append(folder / name)
    made = Manifest("finetune.pairs", "0" * 16)
    made.summary = Manifest.read(questions).summary
    made.write(folder / "manifest.json", files)
    return folder / "manifest.json"


class Run:
    """align.pairs over a few questions, which an endpoint judges."""

    def __init__(self, model: Path, questions: Path, folder: Path) -> None:
        self.model, self.questions, self.folder = model, questions, folder

    def __call__(self, url: str, out: str, *options: str, changes: dict[str, Any] | None = None, **judge: Any) -> int:
        config = tiny.config("align.pairs", **(DRAWN | {"judge": {"model": "big", **judge}} | (changes or {})))
        given = [f"--judge-endpoint={url}", f"--judge-cache={self.folder / 'cache'}", *options]
        words = ["--config", config, "--pairs", str(self.questions), "--model", str(self.model), *given]
        return pairs.main([*words, "--manifest", str(self.folder / out / "manifest.json")])

    def rows(self, out: str) -> list[dict[str, Any]]:
        made = self.folder / out / "manifest.json"
        return [row for name in ("train", "heldout") for row in read_rows(made, name)[0]]

    def same(self, one: str, other: str) -> bool:
        names = ("preference.train.jsonl", "preference.heldout.jsonl", "manifest.json")
        return all(
            (self.folder / one / name).read_bytes() == (self.folder / other / name).read_bytes() for name in names
        )


@pytest.fixture
def run(base_model: Path, few: Path, tmp_path: Path) -> Run:
    return Run(base_model, few, tmp_path)


def answer(body: dict[str, Any]) -> str:
    """The answer that a request, by the prompt of the defaults, asks a score of."""
    found = re.search(r"Answer to judge: (.*)\n\nHow good", body["messages"][0]["content"], re.DOTALL)
    assert found
    return found[1]


def vowels(text: str) -> int:
    return min(10, 1 + sum(letter in "aeiou" for letter in text))


def test_the_best_and_the_worst_by_its_scores(run: Run, served: Any) -> None:
    """Requests that fail are made again, none that was answered; then nothing is asked where replies are kept."""
    broken = {2: (500, {}), 4: (200, b"{"), 6: (429, {})}
    url, got = served(lambda number, body: broken.get(number) or (200, says(f"Score: {vowels(answer(body))}/10")))
    assert run(url, "out") == 0
    rows = run.rows("out")
    assert len(rows) > 5 and all(vowels(row["chosen"]) > vowels(row["rejected"]) for row in rows)
    asked = [json.dumps(body) for _, body in got]
    assert len(asked) == len(set(asked)) + len(broken), "asked once, but for what failed"
    made = Manifest.read(run.folder / "out/manifest.json")
    assert made.counts["in"] == 14 == made.counts["kept"] + sum(made.counts["dropped"].values())
    assert made.summary["judged"]["model"] == "big" and made.summary["judged"]["no_score"] == 0
    assert run("http://127.0.0.1:9/v1", "again", "--judge-requests=1") == 0
    assert run.same("out", "again") and b"127.0.0.1" not in (run.folder / "out/manifest.json").read_bytes()


def test_a_step_that_was_interrupted_goes_on(run: Run, served: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """An endpoint that dies after some answers, then one that hangs, then one that is well: no reply is asked for twice."""
    url, first = served(lambda number, body: (200, says(str(vowels(answer(body))))) if number <= 9 else (503, {}))
    assert run(url, "out", "--judge-attempts=2", "--judge-requests=2") == 1
    said = capfd.readouterr().err
    assert "gave no answer in 2 attempts: HTTP 503" in said and "are kept in" in said and "Traceback" not in said
    held = threading.Event()
    url, second = served(lambda *_: (held.wait(20), (503, {}))[1])
    assert run(url, "out", "--judge-seconds=0.3", "--judge-attempts=1", "--judge-requests=2") == 1
    held.set()
    assert "timed out" in capfd.readouterr().err and not (run.folder / "out/manifest.json").exists()
    url, third = served(lambda _, body: (200, says(str(vowels(answer(body))))))
    assert run(url, "out") == 0
    kept = {json.dumps(body) for _, body in first[:9]}
    assert len(kept) == 9 and not kept & {json.dumps(body) for _, body in second + third}
    assert all(vowels(row["chosen"]) > vowels(row["rejected"]) for row in run.rows("out"))


def test_answers_without_a_score_are_left_out(run: Run, served: Any) -> None:
    """All scores are below 0: a reply without a number, taken as 0, would make its answer the best one."""

    def told(text: str) -> str:
        return "I cannot say." if len(text) % 2 else str(-vowels(text))

    url, _ = served(lambda _, body: (200, says(told(answer(body)))))
    assert run(url, "out", scale=[-10, 0]) == 0
    rows, made = run.rows("out"), Manifest.read(run.folder / "out/manifest.json")
    assert rows and not any(len(row[name]) % 2 for row in rows for name in ("chosen", "rejected"))
    assert all(vowels(row["chosen"]) < vowels(row["rejected"]) for row in rows)
    judged, dropped = made.summary["judged"], made.counts["dropped"]
    assert 0 < judged["no_score"] < judged["answers"] and dropped["no_score"] > 0
    assert f"big gave {judged['no_score']} of {judged['answers']} answers no score" in " ".join(made.summary["notes"])
    assert made.counts["in"] == 14 == made.counts["kept"] + sum(dropped.values())
    url, _ = served(lambda *_: (200, says("no")))
    assert run(url, "none", prompt="{answer}?", scale=[-10, 0]) == 0
    counts = Manifest.read(run.folder / "none/manifest.json").counts
    assert counts["kept"] == 0 and counts["dropped"] == {"no_score": 14}


def test_a_prompt_with_a_reference_takes_questions_that_have_one(run: Run, served: Any) -> None:
    file = run.folder / "rows.jsonl"
    lines = [{"prompt": "What is argparse?", "answer": "A parser {answer}"}, {"prompt": "What is bdb?"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    url, got = served(lambda number, _: (200, says(str(number))))
    files = {"files": [{"path": str(file), "layout": "prompts", "heldout": 0}]}
    assert run(url, "out", changes=files, prompt="{reference} | {answer} | {question}") == 0
    counts = Manifest.read(run.folder / "out/manifest.json").counts
    assert counts == {"in": 2, "kept": 1, "dropped": {"no_reference": 1}}
    assert all(body["messages"][0]["content"].startswith("A parser {answer} | ") for _, body in got)


def test_it_is_weighed_with_other_rewards(run: Run, served: Any) -> None:
    """With a weight below 0, its favourite is the rejected one."""
    url, _ = served(lambda _, body: (200, says(str(vowels(answer(body))))))
    rewards = [{"reward": "endpoint", "weight": -1}, {"reward": "length", "most": 99}]
    assert run(url, "out", changes={"rewards": rewards}) == 0
    assert all(vowels(row["chosen"]) < vowels(row["rejected"]) for row in run.rows("out"))


def test_the_project_s_own_server_judges(run: Run, address: str) -> None:  # noqa: F811
    """A model with random weights names a number now and then; the rest is counted."""
    told = {"model": "sft", "prompt": "Rate: {answer}", "max_tokens": 4, "scale": [-1e9, 1e9]}
    fewer = {"answers": 2, "max_new_tokens": 4}
    assert run(f"{address}/v1", "out", changes=fewer, **told) == 0
    made = Manifest.read(run.folder / "out/manifest.json")
    assert made.summary["judged"]["model"] == "sft" and made.summary["judged"]["answers"] > 20
    assert made.counts["kept"] + sum(made.counts["dropped"].values()) == 14
    assert run("http://127.0.0.1:9/v1", "again", changes=fewer, **told) == 0 and run.same("out", "again")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"endpoint": "127.0.0.1:80"}, r"align\.pairs\.judge\.endpoint is '127\.0\.0\.1:80'; it must be a URL"),
        ({"key": "JUDGE_KEY"}, r"align\.pairs\.judge\.key is 'JUDGE_KEY', and no such environment variable is set"),
        (
            {"endpoint": "http://judge.example/v1", "key": "SET_KEY"},
            r"align\.pairs\.judge\.endpoint is .* over https alone",
        ),
        ({"endpoint": "http://a:b@127.0.0.1/v1"}, r"name an environment variable in align\.pairs\.judge\.key$"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_named(
    given: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    monkeypatch.setenv("SET_KEY", "sk-never-to-be-seen")
    placed = {"endpoint": "http://127.0.0.1:9/v1", "cache": str(tmp_path), **PLACED, **given}
    settings = PairsJudge(model="big", prompt="{answer}", scale=[1, 10], max_tokens=4, **placed)
    with pytest.raises(InputError, match=why) as found:
        EndpointJudge(settings, "align.pairs.rewards[0]")
    assert "never-to-be-seen" not in str(found.value) and KEY in str(found.value)
