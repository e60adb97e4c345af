"""synthesize.rephrase and synthesize.seed over a real endpoint: what they ask, what they keep, and an endpoint that fails in every way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core import endpoint as judging
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.formats.documents import rows
from crawl2llm.stages.synthesize import endpoint as writers
from crawl2llm.stages.synthesize.endpoint import retry_after_seconds
from tests.unit.commands.serve.test_app import address, results  # noqa: F401 - fixtures: a real server of two tiny models
from tests.unit.stages.synthesize.writing import corpus, page, prompt, run, says, serving, settings, texts, words  # noqa: F401 - `endpoint`

SECRET = "sk-never-to-be-seen"  # noqa: S105
REPHRASE, SEED = "synthesize.rephrase", "synthesize.seed"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SLEEP", 0.01)


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """Two shards of ten training pages and two held-out ones each; one of the training pages was written by a model."""
    made = {
        f"0000{shard}": {
            "train": [page(number) for number in range(100 * shard, 100 * shard + 10)],
            "validation": [page(100 * shard + 50), page(100 * shard + 51)],
        }
        for shard in range(2)
    }
    facts = {"synthesized": {"seed": "x", "origin": "h1.org"}}
    made["00001"]["train"][0] |= {"url": "synthesized:x/0", "metadata": json.dumps(facts)}
    return corpus(tmp_path / "corpus", made)


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.name != "run.json"}


@pytest.mark.parametrize("step", [REPHRASE, SEED])
def test_the_same_bytes_at_any_number_of_requests_and_nothing_is_asked_twice(
    endpoint: Any, tmp_path: Path, seeds: Path, step: str
) -> None:
    url, got = endpoint(lambda _, body: (200, says(words(body))))
    config = settings(step, seeds, versions=2)
    assert run(tmp_path / "one/out", url, config, "--requests=1") == 0
    assert run(tmp_path / "many/out", url, config, "--requests=7") == 0
    first = files(tmp_path / "one/out")
    assert first == files(tmp_path / "many/out") and len(got) == 2 * 38, "19 seeds, two styles each"
    # Without the endpoint: all is on the disk.
    assert run(tmp_path / "many/again", "http://127.0.0.1:9/v1", config) == 0
    assert files(tmp_path / "many/again") == first and len(got) == 76

    made = Manifest.read_unchecked(tmp_path / "one/out/manifest.json")
    assert made.counts == {"in": 38, "kept": 38, "dropped": {}}
    assert made.summary["seeds"] == {"documents": 20, "chosen": 19, "synthesized": 1}
    assert made.summary["tokens"] == {"prompt": 3800, "completion": 1900} and made.summary["money"] is None
    held = {f"{number:032x}" for number in (50, 51, 150, 151, 100)}
    found = texts(tmp_path / "one/out")
    pages = {row["id"]: row for shard in ("00000", "00001") for row in rows(seeds / f"train/{shard}.parquet")}
    assert {row["seed"] for row in found} == pages.keys() - held, "no held-out page, and none that a model wrote"
    asked = {writers.name_of(body): prompt(body) for _, body, _ in got}
    for row in found:
        assert pages[row["seed"]]["text"][:300] in asked[row["prompt"]] and row["url"] == pages[row["seed"]]["url"]
        assert (row["model"], row["by"], row["origin"]) == ("m", step, f"h{int(row['seed'], 16)}.org")
        reply = json.loads((tmp_path / f"one/cache/{row['prompt'][:2]}/{row['prompt']}.json").read_text())
        assert reply["reply"]["answer"] == row["text"] and prompt(reply["asked"]) == asked[row["prompt"]]
    assert len({row["id"] for row in found}) == 38 and len({row["style"] for row in found}) > 2


def test_the_project_s_own_server_writes(address: str, tmp_path: Path, seeds: Path) -> None:  # noqa: F811
    keys = {"model": "sft", "language": None, "max_tokens": 12, "styles": {"short": "{text}"}, "passage_characters": 60}
    given = settings(REPHRASE, {"corpus": [str(seeds)], "number": 2}, **keys, min_characters=20)
    assert run(tmp_path / "out", f"{address}/v1", given, "--requests=3") == 0
    made = Manifest.read_unchecked(tmp_path / "out/manifest.json")
    assert made.summary["seeds"]["chosen"] == 2 and made.counts["in"] >= 8
    assert set(made.counts["dropped"]) <= {"cut", "empty", "copy_of_seed", "copy_of_prompt"}
    assert made.summary["tokens"]["completion"] > made.counts["in"] and made.summary["uncounted_replies"] == 0
    before = files(tmp_path / "out")
    assert run(tmp_path / "again", "http://127.0.0.1:9/v1", given) == 0 and files(tmp_path / "again") == before


def test_what_is_no_text_is_dropped_and_counted(endpoint: Any, tmp_path: Path) -> None:
    made = [page(number) for number in range(12)]
    made[9]["text"] = (
        "Le jardin de la maison est grand et beau, et les enfants y jouent tous les jours après l'école. " * 4
    )
    where = corpus(tmp_path / "corpus", {"00000": {"train": made}})
    english = "A garden is a place where children may play all day, as long as nobody minds the noise they make."

    def reply(_: int, body: dict[str, Any]) -> Any:
        at = next(number for number, row in enumerate(made) if row["text"][:200] in prompt(body))
        return {
            0: (200, says("  \n ")),
            1: (200, says(None)),
            2: (200, says(english, "length")),
            3: (200, says("As an AI language model, I do not paraphrase. " + english)),
            4: (200, says("I'm sorry, but this is not something that I will do.")),
            5: (200, says(made[5]["text"].upper())),
            6: (200, says(prompt(body)[: -len(made[6]["text"])])),
            7: (400, {"error": {"message": "too long"}}),
            8: (200, says("La maison a un jardin, et les enfants aiment y jouer quand il fait beau en été.")),
            9: (200, says(english)),
            10: (
                200,
                says("<think>They want simple words.</think>\nSure! Here is the text in simple words:\n\n" + english),
            ),
            11: (200, says(english + " He said: I am sorry. As an author, I mean it.", tokens=None)),
        }[at]

    url, _ = endpoint(reply)
    assert run(tmp_path / "out", url, settings(REPHRASE, where)) == 0
    found = Manifest.read_unchecked(tmp_path / "out/manifest.json")
    assert found.counts["dropped"] == {
        "empty": 2, "cut": 1, "refusal": 2, "copy_of_seed": 1, "copy_of_prompt": 1, "rejected": 1, "language": 2,
    }  # fmt: skip
    assert {int(row["seed"], 16): row["text"] for row in texts(tmp_path / "out")} == {
        10: english,
        11: english + " He said: I am sorry. As an author, I mean it.",
    }
    assert found.summary["uncounted_replies"] == 1


def test_what_another_attempt_mends(endpoint: Any, tmp_path: Path) -> None:
    """It answers with errors, in another shape, hangs up, hangs, and only then writes."""
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(0)]}})
    broken: list[Any] = [(503, {}), (200, {"choices": []}), None, b'{"choices": [', 0.6, (500, {})]
    url, got = endpoint(lambda number, body: broken[number - 1] if number <= 6 else (200, says(words(body))))
    assert run(tmp_path / "out", url, settings(REPHRASE, where), "--attempts=7", "--seconds=0.3") == 0
    assert len(got) == 7 and len(texts(tmp_path / "out")) == 1


def test_a_wait_that_the_endpoint_asks_for_holds_for_all(endpoint: Any, tmp_path: Path) -> None:
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(number) for number in range(6)]}})
    url, got = endpoint(
        lambda number, body: (429, {}, ("Retry-After", "1")) if number == 1 else (200, says(words(body)))
    )
    assert run(tmp_path / "out", url, settings(REPHRASE, where), "--requests=1") == 0
    assert len(got) == 7 and 0.95 <= got[1][2] - got[0][2] < 5


def test_what_retry_after_says() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = (now + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert [retry_after_seconds(told, now) for told in ("7", later, None, "", "soon", "-3", "1e9", "nan")] == [
        7,
        90,
        0,
        0,
        0,
        0,
        600,
        0,
    ]


def test_an_endpoint_that_dies_and_comes_back(
    endpoint: Any, tmp_path: Path, seeds: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = settings(REPHRASE, seeds)
    url, got = endpoint(lambda number, body: (200, says(words(body))) if number <= 5 else None)
    assert run(tmp_path / "a/out", url, config, "--requests=1", "--attempts=2") == 1
    said = capfd.readouterr().err
    assert "gave no answer in 2 attempts" in said and "will not be asked for again" in said and "Traceback" not in said
    assert not (tmp_path / "a/out/manifest.json").exists() and not (tmp_path / "a/out/.seeds").exists()
    url, got = endpoint(lambda _, body: (200, says(words(body))))
    assert run(tmp_path / "a/out", url, config) == 0 and len(got) == 19 - 5
    assert run(tmp_path / "b/out", url, config) == 0 and files(tmp_path / "a/out") == files(tmp_path / "b/out")


def test_killed_and_started_again(endpoint: Any, tmp_path: Path, seeds: Path) -> None:
    """What was replied to before a kill -9 is not asked for again, and the bytes are those of a run that was not killed."""
    config = settings(REPHRASE, seeds)
    url, got = endpoint(lambda number, body: (200, says(words(body))) if number <= 7 else 30.0)
    command = [
        sys.executable,
        "-m",
        "crawl2llm.stages.synthesize.rephrase",
        "--config",
        config,
        f"--endpoint={url}",
        "--requests=2",
    ]
    paths = [f"--cache={tmp_path / 'a/cache'}", "--manifest", str(tmp_path / "a/out/manifest.json")]
    with subprocess.Popen([*command, *paths], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 900
        while len(got) < 9 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    assert len(got) == 9 and not (tmp_path / "a/out/manifest.json").exists()
    url, again = endpoint(lambda _, body: (200, says(words(body))))
    assert run(tmp_path / "a/out", url, config) == 0 and len(again) == 19 - 7
    assert run(tmp_path / "b/out", url, config) == 0 and files(tmp_path / "a/out") == files(tmp_path / "b/out")


@pytest.mark.parametrize(("status", "told"), [(401, "refuses: HTTP 401 no such key"), (404, "refuses: HTTP 404")])
def test_an_endpoint_that_refuses_to_work_ends_the_step_at_once(
    endpoint: Any, tmp_path: Path, seeds: Path, capfd: pytest.CaptureFixture[str], status: int, told: str
) -> None:
    url, got = endpoint(lambda *_: (status, {"error": {"message": "no such key"}}))
    assert run(tmp_path / "out", url, settings(REPHRASE, seeds), "--requests=1") == 1
    assert told in capfd.readouterr().err and len(got) == 1


def test_an_endpoint_that_refuses_every_prompt_is_not_asked_for_all(
    endpoint: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(number) for number in range(200)]}})
    url, got = endpoint(lambda *_: (400, {"error": {"message": "bad"}}))
    assert run(tmp_path / "out", url, settings(REPHRASE, where), "--requests=2") == 1
    assert "refuses every prompt: HTTP 400 bad" in capfd.readouterr().err and len(got) < 60


def test_the_budget(endpoint: Any, tmp_path: Path) -> None:
    """The same texts at any number of requests, never more than the budget, and a larger one asks for the rest alone."""
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(number) for number in range(40)]}})
    url, got = endpoint(lambda _, body: (200, says(words(body), tokens=(300 + len(prompt(body)) % 7, 40))))
    made: dict[str, Any] = {}
    for name, requests in (("one", 1), ("many", 8)):
        config = settings(REPHRASE, where, budget={"tokens": 9000, "money": None}, max_tokens=50)
        assert run(tmp_path / name / "out", url, config, f"--requests={requests}") == 0
        made[name] = files(tmp_path / name / "out")
    assert made["one"] == made["many"] and len(got) % 2 == 0
    found = Manifest.read_unchecked(tmp_path / "one/out/manifest.json")
    spent = sum(found.summary["tokens"].values())
    assert 9000 - 1000 < spent <= 9000 and found.counts["kept"] == len(got) // 2
    assert found.counts["dropped"] == {"budget": 40 - found.counts["kept"]} and found.counts["in"] == 40

    made_before = found.counts["kept"]
    prices = {"prompt": 1.0, "completion": 4.0}  # of a million tokens
    config = settings(REPHRASE, where, budget={"tokens": None, "money": 0.01}, prices=prices, max_tokens=50)
    assert run(tmp_path / "one/money", url, config) == 0
    found = Manifest.read_unchecked(tmp_path / "one/money/manifest.json")
    tokens = found.summary["tokens"]
    assert found.summary["money"] == pytest.approx((tokens["prompt"] + 4 * tokens["completion"]) / 1e6)
    assert 0.008 < found.summary["money"] <= 0.01 and found.counts["dropped"]["budget"] > 0
    before, config = len(got), settings(REPHRASE, where, max_tokens=50)
    assert run(tmp_path / "one/all", url, config) == 0
    assert len(got) == before + 40 - max(made_before, found.counts["kept"])
    whole = {row["id"] for row in texts(tmp_path / "one/all")}
    assert len(whole) == 40 and {row["id"] for row in texts(tmp_path / "one/out")} < whole


def test_more_tokens_than_a_prompt_has_bytes(endpoint: Any, tmp_path: Path) -> None:
    """As where an endpoint puts text of its own before each prompt: the same texts at any number of requests all the same."""
    where = corpus(tmp_path / "corpus", {"00000": {"train": [page(number) for number in range(30)]}})
    url, _ = endpoint(lambda _, body: (200, says(words(body), tokens=(5000, 40))))
    config = settings(REPHRASE, where, budget={"tokens": 9000, "money": None}, max_tokens=50)
    assert not run(tmp_path / "one/out", url, config, "--requests=1") + run(tmp_path / "many/out", url, config)
    assert files(tmp_path / "one/out") == files(tmp_path / "many/out")
    assert Manifest.read_unchecked(tmp_path / "one/out/manifest.json").counts == {
        "in": 30,
        "kept": 2,
        "dropped": {"budget": 28},
    }


def test_further_keys_of_a_request(endpoint: Any, tmp_path: Path, seeds: Path) -> None:
    more = {"request": {"top_p": 0.5, "max_tokens": None, "max_completion_tokens": 7}}
    url, got = endpoint(lambda _, body: (200, says(words(body))))
    assert run(tmp_path / "out", url, settings(REPHRASE, {"corpus": [str(seeds)], "number": 1}, **more)) == 0
    ((_, body, _),) = got
    assert {key: value for key, value in body.items() if key != "messages"} == {
        "model": "m", "temperature": 0.7, "top_p": 0.5, "max_completion_tokens": 7,
    }  # fmt: skip


@pytest.mark.parametrize("status", [400, 401, 503])
def test_an_endpoint_that_repeats_the_key(
    endpoint: Any,
    tmp_path: Path,
    seeds: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    status: int,
) -> None:
    monkeypatch.setenv("WRITER_KEY", SECRET)
    url, _ = endpoint(lambda *_: (status, {"error": {"message": f"bad key {SECRET}"}}))
    config = settings(REPHRASE, seeds, versions=2)
    assert run(tmp_path / "out", url, config, "--key=WRITER_KEY", "--attempts=1", "--requests=1") == 1
    said = capfd.readouterr().err
    assert f"HTTP {status} bad key ***" in said and SECRET not in said


def test_no_secret_is_written_or_said(
    endpoint: Any, tmp_path: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WRITER_KEY", SECRET)
    url, got = endpoint(lambda number, body: (503, {}) if number % 3 == 0 else (200, says(words(body))))
    assert run(tmp_path / "out", url, settings(REPHRASE, seeds), "--key=WRITER_KEY") == 0
    assert {headers["Authorization"] for headers, *_ in got} == {f"Bearer {SECRET}"}
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    said = capfd.readouterr()
    assert SECRET.encode() not in written and SECRET not in said.out + said.err
    monkeypatch.delenv("WRITER_KEY")
    assert run(tmp_path / "b/out", url, settings(REPHRASE, seeds), "--key=WRITER_KEY") == 1
    assert "synthesize.rephrase.key is 'WRITER_KEY', and no such environment variable is set" in capfd.readouterr().err
