"""evaluate.judge against the project's own server, and against an endpoint that fails in every way that one can."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain.fingerprint import tracked_settings as settings_of
from crawl2llm.core import endpoint, judging
from crawl2llm.core.endpoint import Endpoint
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, canonical_json
from crawl2llm.stages.evaluate import judge
from tests.unit.commands.serve.test_app import address, results  # noqa: F401 - fixtures: a real server of two tiny models
from tests.unit.stages.evaluate.endpoints import says, serving  # noqa: F401 - the fixture `served`

SECRET = "sk-never-to-be-seen"  # noqa: S105


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SLEEP", 0.01)


def answers(folder: Path, number: int = 6) -> Path:
    """A manifest of evaluate.generate."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "id": f"i{at}",
            "document": f"d{at // 2}",
            "question": f"What is {at}?",
            "text": f"It is {at}.",
            "reference": "{answer} it was",
        }
        for at in range(number)
    ]
    path = folder / "sft.answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    Manifest("evaluate.generate", "0" * 16).write(folder / "sft.manifest.json", [path])
    return folder / "sft.manifest.json"


def judged(tmp_path: Path, url: str, *options: str, out: str = "out", **changes: Any) -> int:
    complete = configuration.validate({"evaluate": {"judge": {"model": "big", **changes}}})
    given = canonical_json({"step": "evaluate.judge", "config": settings_of("evaluate.judge", complete)})
    words = [
        "--generated",
        str(answers(tmp_path / "generate")),
        f"--endpoint={url}",
        f"--cache={tmp_path / 'cache'}",
        *options,
    ]
    return judge.main(["--config", given, *words, "--manifest", str(tmp_path / out / "sft.manifest.json")])


def read(tmp_path: Path, out: str = "out") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    lines = (tmp_path / out / "sft.scores.jsonl").read_text().splitlines()
    return json.loads((tmp_path / out / "sft.judged.json").read_text()), [json.loads(line) for line in lines]


def test_the_project_s_own_server_judges(address: str, tmp_path: Path) -> None:  # noqa: F811
    assert judged(tmp_path, f"{address}/v1", "--requests=2", model="sft", max_tokens=8, prompt="Rate: {answer}") == 0
    found, lines = read(tmp_path)
    assert found["items"] + found["without_score"] == 6 and found["judge"] == "sft"
    assert all(line["reply"] for line in lines)
    # The same without the server: all replies are kept, and they give the same bytes.
    assert (
        judged(tmp_path, "http://127.0.0.1:9/v1", out="again", model="sft", max_tokens=8, prompt="Rate: {answer}") == 0
    )
    for name in ("sft.judged.json", "sft.scores.jsonl", "sft.manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_scores_and_what_was_asked(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)

    def reply(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        at = int(body["messages"][0]["content"].split("What is ")[1][0])
        return 200, says(["7", "Score: 8/10", "none", "11", "3.5", "-2"][at])

    url, got = served(reply)
    assert judged(tmp_path, url, "--key=JUDGE_KEY", "--requests=3") == 0
    found, lines = read(tmp_path)
    assert [line["score"] for line in lines] == [7, 8, None, None, 3.5, None]
    assert (found["items"], found["without_score"], found["documents"]) == (3, 3, 2)
    assert found["score"] == pytest.approx(18.5 / 3, abs=1e-5) and found["share"] == pytest.approx(
        (18.5 / 3 - 1) / 9, abs=1e-5
    )
    assert len(got) == 6 and {headers["Authorization"] for headers, _ in got} == {f"Bearer {SECRET}"}
    assert all("Reference answer: {answer} it was" in body["messages"][0]["content"] for _, body in got), (
        "filled in once"
    )
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    said = capfd.readouterr()
    assert SECRET.encode() not in written and SECRET not in said.out + said.err


def test_what_another_attempt_mends(served: Any, tmp_path: Path) -> None:
    broken = [(429, {}), (503, {}), (200, b"{"), (200, {"choices": []}), (500, {})]
    url, got = served(lambda number, _: broken[number - 1] if number <= 5 else (200, says("5")))
    assert judged(tmp_path, url, "--requests=1", "--attempts=6") == 0
    assert read(tmp_path)[0]["score"] == 5 and len(got) == 5 + 6


def test_half_of_a_surrogate_pair_in_a_reply_is_replaced(served: Any, tmp_path: Path) -> None:
    url, _ = served(lambda *_: (200, says("9 \ud83d")))
    assert Endpoint(url, "", tmp_path, 1, 5.0, 1).answers([{"model": "m"}]) == ["9 ?"]


def test_an_endpoint_that_dies(served: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url, got = served(lambda number, _: (200, says("4")) if number <= 3 else (503, {"error": {"message": "no\nmore"}}))
    assert judged(tmp_path, url, "--requests=1", "--attempts=2") == 1
    said = capfd.readouterr().err
    assert (
        "gave no answer in 2 attempts: HTTP 503 no more; 3 of 6 answers are kept in" in said and "Traceback" not in said
    )
    assert not (tmp_path / "out/sft.manifest.json").exists()
    url, got = served(lambda *_: (200, says("6")))
    assert judged(tmp_path, url) == 0
    assert len(got) == 3 and sorted(line["score"] for line in read(tmp_path)[1]) == [4, 4, 4, 6, 6, 6]


def test_a_request_that_is_refused_is_set_aside(served: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A prompt longer than the judge's context."""

    def reply(_: int, body: dict[str, Any]) -> tuple[int, Any]:
        if "What is 2?" in body["messages"][0]["content"]:
            return 400, {"error": {"message": "maximum context length is 8 tokens"}}
        return 200, says("4" if "What is 1?" in body["messages"][0]["content"] else "none")

    url, got = served(reply)
    assert judged(tmp_path, url, "--requests=1") == 0
    found, lines = read(tmp_path)
    assert [line["reply"] for line in lines] == ["none", "4", None, "none", "none", "none"]
    assert (found["items"], found["without_score"], len(got)) == (1, 5, 6)
    made = Manifest.read(tmp_path / "out/sft.manifest.json")
    assert made.counts == {"in": 6, "kept": 1, "dropped": {"refused": 1, "without_score": 4}}
    said = capfd.readouterr().err
    assert "1 of 6 requests are refused, such as: " in said and "maximum context length is 8 tokens" in said
    assert "4 of 5 replies have no number" in said


def test_an_endpoint_that_refuses_everything_is_an_error(
    served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url, got = served(lambda *_: (400, {"error": {"message": "no such parameter"}}))
    assert judged(tmp_path, url, "--requests=1") == 1
    assert "refuses: HTTP 400 no such parameter; 0 of 6 answers" in capfd.readouterr().err and len(got) == 6
    monkeypatch.setattr(endpoint, "MOST_REFUSED", 2)
    assert judged(tmp_path, url, "--requests=1") == 1 and len(got) == 8


@pytest.mark.parametrize(
    ("status", "told"), [(401, "HTTP 401 no such key"), (302, "HTTP 302"), (404, "HTTP 404 no such key")]
)
def test_a_refusal_ends_at_once(
    served: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int, told: str
) -> None:
    url, got = served(lambda *_: (status, {"error": {"message": "no such key"}}))
    assert judged(tmp_path, url, "--requests=1") == 1
    assert f"refuses: {told}" in capfd.readouterr().err and len(got) == 1, "no redirect is followed"


def test_what_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(url: str, key: str = "") -> Endpoint:
        return Endpoint(url, key, tmp_path, 1, 1.0, 1)

    monkeypatch.delenv("JUDGE_KEY", raising=False)
    for url, key, told in (
        ("127.0.0.1:80", "", "it must be a URL"),
        ("http://127.0.0.1:80/v1", "JUDGE_KEY", "no such environment variable is set"),
        ("http://name:word@127.0.0.1/v1", "", "holds a name or a password"),
        ("http://127.0.0.1/v1?api-key=word", "", "has a query or a fragment"),
        ("http://[::1", "", "evaluate.judge.endpoint is 'http://\\[::1': .*; it must be a URL"),
        ("http://127.0.0.1:99999/v1", "", "evaluate.judge.endpoint is .*; it must be a URL"),
    ):
        with pytest.raises(InputError, match=told) as found:
            made(url, key)
        assert "word" not in str(found.value).replace("password", "")
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with pytest.raises(InputError, match="over https alone"):
        made("http://judge.example/v1", "JUDGE_KEY")


@pytest.mark.parametrize("key", [f"{SECRET}\nline", f"{SECRET}\u2013", f"{SECRET} word"])
def test_a_key_that_no_header_can_hold_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(InputError, match=r"evaluate.judge.key is 'JUDGE_KEY': .* printable ASCII") as found:
        Endpoint("http://127.0.0.1:9/v1", "JUDGE_KEY", tmp_path, 1, 1.0, 1)
    assert SECRET not in str(found.value)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("8", 8.0),
        ("I give 9.", 9.0),
        ("**10**", 10.0),
        ("0", None),
        ("no", None),
        ("gpt4 says 3", 3.0),
        ("7/10", 7.0),
        ("1e3", None),
        ("On a scale from 1 to 10: 7", 7.0),
        ("I rate this 7 out of 10", 7.0),
        ("1. Correct. Score: **4**/10.", 4.0),
        ("Score: 15", None),
    ],
)
def test_the_last_number_of_a_reply(reply: str, value: float | None) -> None:
    assert judging.parse_score(reply, 1, 10) == value


KEY = "sk-planted-0123456789abcdef"


@pytest.mark.parametrize("status", [200, 401, 503])
@pytest.mark.parametrize("said", [KEY, KEY.upper(), KEY[:20], "x" * 180 + KEY])
def test_an_endpoint_that_repeats_the_key(
    served: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    status: int,
    said: str,
) -> None:
    """In a refusal, in an error that passes, and in a reply, which is kept in the cache and in the result."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    url, _ = served(
        lambda *_: (status, says(f"8, not {said}") if status == 200 else {"error": {"message": f"no {said}"}})
    )
    done = judged(tmp_path, url, "--key=JUDGE_KEY", "--attempts=1", "--requests=1", f"--log={tmp_path}/log")
    assert done == (status != 200)
    shown = capfd.readouterr()
    kept = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file())
    assert KEY[:14].lower() not in f"{shown.out}{shown.err}{kept}".lower()
    assert ("***" in kept) and (status == 200 or f"HTTP {status} no " in shown.err)


def test_an_answer_that_is_no_http_is_not_repeated_with_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            there, _ = listening.accept()
            with there:
                there.recv(65536)
                there.sendall(f"BAD {KEY}\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        asked = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "JUDGE_KEY", tmp_path, 1, 5.0, 1)
        with pytest.raises(InputError, match=r"BAD \*\*\*") as found:
            asked.answer({"model": "m", "messages": []})
        thread.join()
    assert KEY not in str(found.value)


def test_a_key_from_a_file(served: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    url, got = served(lambda *_: (200, says("8")))
    assert judged(tmp_path, url, f"--key=file:{file}") == 0
    assert {headers["Authorization"] for headers, _ in got} == {f"Bearer {KEY}"}
    file.chmod(0o644)
    with pytest.raises(InputError, match=rf"evaluate.judge.key names {file}, which others can read"):
        Endpoint(url, f"file:{file}", tmp_path, 1, 1.0, 1)
