"""A model is fetched from a real server that speaks as the hub does: whole, at its commit, from where a fetch was cut off."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from crawl2llm.commands.fetch_model import command
from crawl2llm.core.errors import InputError
from crawl2llm.training.published import hub_folders
from tests.unit.stages.ingest.servers import Handler, Server, http_server

NAME, COMMIT = "owner/small", "0123456789" * 4
ROOT = f"/{NAME}/resolve/{COMMIT}/"


class ModelHandler(Handler):
    """As the hub answers for one model at one commit; `/secret` is for those with the token `hf_right`."""

    def entries(self) -> list[dict[str, Any]]:
        entries = []
        for path, file in self.server.files.items():
            data, name = file.data, path.removeprefix(ROOT)
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's
            large = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 100}}
            entries.append(
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": git,
                    **(large if name.endswith("tensors") else {}),
                }
            )
        return entries

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].replace("%2F", "/")
        if path.startswith("/api/models/owner/gated/") and self.headers.get("Authorization") != "Bearer hf_right":
            return self.status(401, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            data = json.dumps(self.entries()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return None
        if path.startswith(f"/api/models/{NAME}/"):
            return self.status(404, X_Error_Code="RevisionNotFound")
        if path.startswith("/api/"):
            return self.status(404, X_Error_Code="RepoNotFound")
        return super().do_GET()


@pytest.fixture
def server(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A hub with the model, in whose folder the test works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with http_server(ModelHandler) as hub_server:
        monkeypatch.setenv("HF_ENDPOINT", hub_server.url)
        for file in small.iterdir():
            hub_server.put(f"{ROOT[1:]}{file.name}", file.read_bytes())
        for name in ("pytorch_model.bin", "modeling_small.py", "onnx/model.onnx"):
            hub_server.put(f"{ROOT[1:]}{name}", b"no")
        yield hub_server


def test_a_model_is_fetched_once_and_found_without_a_network(
    server: Server, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / hub_folders.cache_folder(NAME, COMMIT)
    with pytest.raises(
        InputError, match=f"run crawl2llm fetch-model {NAME} --revision {COMMIT} --to {to}, where there"
    ):
        hub_folders.hub_folder(NAME, COMMIT)
    for _ in range(2):
        assert command.main([NAME, "--revision", COMMIT]) == 0
    folder = hub_folders.hub_folder(NAME, COMMIT)
    assert hub_folders.name_of_folder(folder) == NAME and hub_folders.name_of_folder(small) == small.name
    assert f"{NAME} at {COMMIT} is in {folder}\n" in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in small.iterdir()
    }
    gets = [path for method, path, _ in server.asked if method == "GET"]
    assert len(gets) == len(set(gets)) == len(list(small.iterdir())), "no pickle, no code, nothing twice"
    with pytest.raises(InputError, match=r"the revision of owner/small is 'main'; allowed: the 40 hex digits"):
        hub_folders.hub_folder(NAME, "main")


def test_a_tokenizer_is_fetched_without_its_model(server: Server) -> None:
    content = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}).encode()
    server.put(f"{ROOT[1:]}tokenizer.json", content)
    assert command.main([NAME, "--revision", COMMIT, "--tokenizer"]) == 0
    folder = hub_folders.tokenizer_folder(NAME, COMMIT)
    assert folder.parent == hub_folders.TOKENIZERS and (folder / "tokenizer.json").read_bytes() == content
    assert not any(path.endswith((".safetensors", "config.json")) for _, path, _ in server.asked)
    server.files.pop(f"{ROOT}tokenizer.json")
    shutil.rmtree(folder)
    assert command.main([NAME, "--revision", COMMIT, "--tokenizer"]) == 1


def test_a_fetch_that_was_cut_off_goes_on_where_it_was(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # bytes that are written at a time; 10 MB otherwise
    weights = server.files[f"{ROOT}model.safetensors"]
    weights.statuses = [500] * 9
    assert command.main([NAME, "--revision", COMMIT]) == 1
    error = capsys.readouterr().err
    assert "was not fetched whole (" in error and f"{COMMIT}.part: run the same command again" in error
    assert not hub_folders.cache_folder(NAME, COMMIT).exists()
    partial = hub_folders.cache_folder(NAME, COMMIT).with_name(f"owner--small@{COMMIT}.part")
    data, weights.statuses = weights.data, []
    (partial / "model.safetensors.incomplete").write_bytes(data[:5000])  # as a killed process leaves it
    weights.drop = 8000  # the line breaks after so many bytes
    server.asked.clear()
    assert command.main([NAME, "--revision", COMMIT]) == 0
    ranges = [asked for _, path, asked in server.asked if path.endswith("model.safetensors")]
    assert ranges == ["bytes=5000-", "bytes=13000-"]
    assert (hub_folders.hub_folder(NAME, COMMIT) / "model.safetensors").read_bytes() == data


def test_what_arrives_otherwise_than_the_hub_says_is_thrown_away(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    partial = hub_folders.cache_folder(NAME, COMMIT).with_name(f"owner--small@{COMMIT}.part")
    partial.mkdir(parents=True)
    (partial / "model.safetensors.incomplete").write_bytes(b"x" * 5000)
    assert command.main([NAME, "--revision", COMMIT]) == 1
    assert "model.safetensors of owner/small arrived with another checksum; run the same" in capsys.readouterr().err
    assert command.main([NAME, "--revision", COMMIT]) == 0


@pytest.mark.parametrize(
    ("name", "commit", "message"),
    [
        ("owner/none", COMMIT, "the hub has no model owner/none, or it is private (HF_TOKEN is set)"),
        (NAME, "f" * 40, f"owner/small has no commit {'f' * 40} on the hub"),
        ("owner/gated", COMMIT, "owner/gated is gated: ask for access on its page, and set HF_TOKEN to a token"),
        ("../etc", COMMIT, "'../etc' is no name of a model on the hub; allowed: OWNER/NAME"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    commit: str,
    message: str,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_secret")
    assert command.main([name, "--revision", commit]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and "hf_wrong" not in error


def test_a_folder_of_another_commit_is_neither_taken_nor_gone_on_with(
    server: Server, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, partial = tmp_path / "mine", tmp_path / "mine.part"
    shutil.copytree(small, partial)  # what an attempt for an earlier commit left
    (partial / "config.json").write_text("{}")
    (partial / "chat_template.jinja").write_text("{{ messages }}")
    fetch = [NAME, "--revision", COMMIT, "--to", str(to)]
    assert command.main(fetch) == command.main(fetch) == 0
    assert {file.name: file.read_bytes() for file in to.iterdir()} == {f.name: f.read_bytes() for f in small.iterdir()}
    (to / "config.json").write_text('{"model_type": "llama"}')
    assert command.main(fetch) == 1
    assert f"{to} is there already, and its config.json is not that of {NAME} at {COMMIT}" in capsys.readouterr().err
