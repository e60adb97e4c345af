"""Runs with planted secrets: nothing that they write, print or start has one of them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow.parquet as pq
import pytest
import yaml

from crawl2llm.chain.steps import program_of
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import rows
from tests.unit.stages.evaluate.endpoints import says as judged
from tests.unit.stages.evaluate.endpoints import serving as judging  # noqa: F401 - the fixture `served`
from tests.unit.stages.ingest.servers import Handler, Server, http_server
from tests.unit.stages.synthesize.writing import corpus, page, says, serving, words  # noqa: F401 - the fixture `endpoint`
from tests.workflow import forked
from tests.workflow.conftest import ROOT, TINY, environment

# The names of environment variables, and what is planted there. A run reads the first four itself, libraries the others.
PLANTED = {
    name: f"planted-{number}-{name[::-1]}/+{number}"
    for number, name in enumerate(
        (
            "C2L_JUDGE",
            "C2L_COOKIE",
            "C2L_SESSION",
            "C2L_PWD",
            "HF_TOKEN",
            "WANDB_API_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        )
    )
}
OF_FILE = "planted-9-of-a-file/+9"


def forms(secret: str) -> list[bytes]:
    """What a secret looks like as it is, in a URL and in base64, and its larger half."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return [form.encode() for form in (secret, quote(secret, safe=""), encoded, secret[: len(secret) // 2 + 4])]


def secrets_in(data: bytes) -> set[str]:
    """The names of the secrets in some bytes."""
    return {
        name for name, secret in {**PLANTED, "a file": OF_FILE}.items() if any(form in data for form in forms(secret))
    }


def files_with_secrets(folder: Path) -> dict[str, set[str]]:
    """Files below a folder that hold a secret, or are named by one, hidden ones too; the columns of Parquet are read."""
    found = {}
    for path in folder.rglob("*"):
        data = os.fsencode(path.relative_to(folder))
        if path.is_file():
            data += path.read_bytes()
        if path.is_file() and path.suffix == ".parquet":
            data += json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
        if named := secrets_in(data):
            found[str(path.relative_to(folder))] = named
    return found


@contextmanager
def command_lines() -> Iterator[list[bytes]]:
    """The command lines of all processes of this machine, as `ps` shows them, while the body works."""
    found: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found.add(process.read_bytes())
                except OSError:  # it is gone
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    lines: list[bytes] = []
    try:
        yield lines
    finally:
        over.set()
        thread.join()
        lines += sorted(found)


def start(folder: Path, step: str, *options: str, fails: bool = False, **more: str) -> str:
    """What a run in a folder prints, with the secrets in its environment; none of its processes, of which one is of `step`, shows one."""
    line = [*options, "--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/local")]
    with command_lines() as processes:
        done = forked.snakemake(
            *line, "--configfile", "mine.yaml", cwd=folder, env={**environment(), **PLANTED, **more}
        )
    assert bool(done.returncode) == fails, done.stdout
    assert any(program_of(step).encode() in one for one in processes), done.stdout
    assert not [one for one in processes if secrets_in(one)]
    assert not secrets_in(done.stdout.encode()), done.stdout
    return done.stdout


def commands(folder: Path) -> None:
    """What the commands for people say of a run, and the pages and records that they write."""
    for words_ in (
        ["plan", "--configfile", "mine.yaml"],
        ["report", "--configfile", "mine.yaml"],
        ["record", "results/main"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "crawl2llm", *words_],
            cwd=folder, env={**environment(), **PLANTED, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
        )  # fmt: skip
        assert not secrets_in(done.stdout + done.stderr), words_
        assert b"Traceback" not in done.stderr, done.stderr.decode()


class Guarded(Handler):
    """A server of files that only who has the secrets gets, and that repeats what it was sent where it refuses."""

    def answer(self, body: bool) -> None:
        sent = json.dumps([unquote(self.path), dict(self.headers)])
        wanted = [
            PLANTED["C2L_COOKIE"],
            PLANTED["C2L_SESSION"],
            PLANTED["C2L_PWD"],
            OF_FILE,
        ]
        self.server.__dict__.setdefault("lacking", []).extend(one for one in wanted if one not in sent)
        if "refused" in self.path:
            return self.status(403, X_Sent=sent, ETag=sent)
        return super().answer(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with http_server(Guarded) as made:
        yield made


@pytest.mark.slow
def test_sources_and_a_model_behind_an_endpoint(tmp_path: Path, server: Server, endpoint: Any) -> None:
    """Headers and queries of a source, and the key of a model that writes texts: it repeats the key in an error and in replies."""
    key = PLANTED["C2L_JUDGE"]

    def reply(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        return (
            (503, {"error": {"message": f"busy, {key}"}}) if number == 1 else (200, says(f"{words(body)} It is {key}."))
        )

    url, got = endpoint(reply)
    (tmp_path / "key").write_text(OF_FILE)
    (tmp_path / "key").chmod(0o600)
    seeds = corpus(tmp_path / "seeds", {"00000": {"train": [page(number) for number in range(12)]}})
    server.put("web.jsonl", "".join(json.dumps({"text": page(number)["text"]}) + "\n" for number in range(20)).encode())
    named = f"{server.url}/web.jsonl?session={{env:C2L_SESSION}}&code={{env:C2L_SESSION}}&pwd={{env:C2L_PWD}}"
    options = {"headers": {"Cookie": "id={env:C2L_COOKIE}", "X-Of": "{file:key}"}}
    tree: dict[str, Any] = {
        "ingest": {
            "fetch": {"enabled": True},
            "extract": {
                "shards": 1,
                "sources": [
                    {"name": "web", "kind": "jsonl", "paths": [named], "options": options, "patience": 5},
                    {"name": "written", "kind": "synthesized", "step": "synthesize.rephrase"},
                ],
            },
        },
        "synthesize": {
            "rephrase": {
                "model": "m",
                "endpoint": url,
                "key": "C2L_JUDGE",
                "seeds": {"corpus": [str(seeds)], "number": 4},
            },
        },
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(tree))
    start(tmp_path, "ingest.extract", "results/main/ingest/check/manifest.json")
    assert not server.__dict__["lacking"] and {headers["Authorization"] for headers, *_ in got} == {f"Bearer {key}"}
    made = Manifest.read_unchecked(tmp_path / "results/main/ingest/extract/00000.manifest.json")
    texts = [row["text"] for name in made.files if "dropped" not in name for row in rows(made.file(name))]
    assert len(texts) > 20 and any("It is ***." in text for text in texts)

    # What fails tells more: a file that is refused with what was sent, and an endpoint that refuses the key.
    tree["ingest"]["extract"]["sources"][0]["paths"] = [named.replace("web.jsonl", "refused.jsonl")]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(tree))
    printed = start(tmp_path, "ingest.list", "results/main/ingest/check/manifest.json", fails=True)
    assert "the server answers 403" in printed
    commands(tmp_path)
    (tmp_path / "key").unlink()
    assert not files_with_secrets(tmp_path)
    searched = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert {"results", "logs", ".snakemake", ".cache"} <= searched


@pytest.mark.slow
def test_a_judge_of_a_complete_run(copy_of: Callable[[], Path], served: Any) -> None:
    """Report, records and frozen copies of a whole run, whose judge repeats its key."""
    folder, key = copy_of(), PLANTED["C2L_JUDGE"]
    url, got = served(lambda *_: (200, judged(f"7 for {key}")))
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["evaluate"]["generate"] = {"questions": 4, "max_new_tokens": 8}
    tree["evaluate"]["judge"] = {"model": "m", "endpoint": url, "key": "C2L_JUDGE"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    start(folder, "evaluate.judge", "--cores=2")
    assert got and got[0][0]["Authorization"] == f"Bearer {key}"
    commands(folder)
    assert (folder / "results/main/report/render/report.html").exists()
    assert not files_with_secrets(folder)


@pytest.mark.slow
@pytest.mark.long
def test_a_training_that_writes_for_weights_and_biases(copy_of: Callable[[], Path]) -> None:
    """What its client writes for a later upload has neither its key nor another secret of the environment."""
    folder = copy_of()
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    tree["pretrain"]["train"] |= {"steps": 20, "wandb": "offline", "tensorboard": True}
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    start(folder, "pretrain.train", "--cores=2", "--until", "pretrain_train", WANDB_MODE="offline")
    assert list(folder.rglob("*.wandb"))
    assert not files_with_secrets(folder)
