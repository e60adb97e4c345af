"""GGUF files that real llama.cpp runs behind the server: greedy texts as transformers', OpenAI's shapes, and what cannot be served."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import torch

from crawl2llm.commands.serve import command, generate, gguf_header, sample
from crawl2llm.commands.serve.catalog import gguf_exports
from crawl2llm.commands.serve.generate import AnswerEnd, GenerationRequest, model_manifests
from crawl2llm.commands.serve.gguf import Export, Model, describe_file
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import gguf, gguf_support
from crawl2llm.training.template import Template
from tests.unit.stages.compress.conftest import needs_llama, tokenizer_files, trained, written

HI = [{"role": "user", "content": "What does heapq.heappop do?"}]
TEXTS = [
    "The function",
    "    def __init__(self, ",
    "heapq.heappush(heap, item)\n    Push 12345 items",
    "ünï — 😶",
    "",
    "<|endoftext|>",
]
EXPORTS = {"gguf": ("sft", ["f32", "q8_0"]), "whole": ("base", ["f16"])}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with `base` and `sft`, which chats, of random weights, and their exports as EXPORTS says."""
    place = tmp_path_factory.mktemp("gguf")
    folder = place / "results/main"
    tokenizer_files(place / "tokenizer", trained(1))
    made = {"base": folder / "pretrain/train/model", "sft": folder / "finetune/train/sft/model"}
    for path, kind in zip(made.values(), ("qwen3", "llama"), strict=True):
        written(path, place / "tokenizer", kind, tie_embeddings=False)  # tied, they say one word again and again
    (made["sft"] / "chat_template.jinja").write_text(
        Template.parse("Question: {question}\nAnswer: {answer}").chat_template()
    )
    Manifest("pretrain.train", "0" * 16).write(folder / "pretrain/train/manifest.json", sorted(made["base"].iterdir()))
    Manifest("finetune.train", "0" * 16).write(
        folder / "finetune/train/sft.manifest.json", sorted(made["sft"].iterdir())
    )
    for name, (of, types) in EXPORTS.items():
        out = folder / "compress/export" / name
        out.mkdir(parents=True)
        files = {one: out / gguf.file_name(name, one) for one in types}
        for one, path in files.items():
            if one in gguf.UNQUANTIZED:
                told = {
                    "converter": str(gguf_support.TOOLS.folder() / "llama.cpp"),
                    "pre": "smollm",
                    "model": str(made[of]),
                }
                gguf.run_job(
                    gguf_support.TOOLS.folder(), place, do="convert", type=one, name=name, file=str(path), **told
                )
            else:
                gguf.run_job(
                    gguf_support.TOOLS.folder(),
                    place,
                    do="quantize",
                    source=str(files["f32"]),
                    file=str(path),
                    type=one,
                    threads=1,
                )
        manifest = Manifest("compress.export", "0" * 16)
        manifest.summary = {"gguf": [{"type": one, "file": path.name} for one, path in files.items()]}
        manifest.write(out.with_name(f"{name}.manifest.json"), files.values())
    return folder


@pytest.fixture(scope="module")
def pair(results: Path) -> tuple[generate.Model, Model]:
    """`sft` by transformers, and its f32 file by llama.cpp."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    return generate.Model(model_manifests(results)["sft"]), Model(gguf_exports(results)["gguf"][0])


def said(model: generate.Model | Model, wanted: GenerationRequest) -> tuple[str, AnswerEnd]:
    """(text, why it ended) of an answer."""
    out: list[str] = []
    ended = model.generate_answer(wanted, out.append, threading.Event())
    return "".join(out), ended


def clear_tokens(model: generate.Model, ids: list[int], most: int) -> int:
    """How many tokens of a greedy text come before a choice between two that are as likely to the third digit, up to `most`."""
    ids = list(ids)
    for number in range(most):
        with torch.no_grad():
            likeliest = model.model(torch.tensor([ids])).logits[0, -1].topk(2)
        if float(likeliest.values[0] - likeliest.values[1]) < 1e-3:
            return number
        ids.append(int(likeliest.indices[0]))
    return most


@needs_llama
@pytest.mark.slow
def test_greedy_texts_are_those_of_transformers(pair: tuple[generate.Model, Model]) -> None:
    other, model = pair
    assert (model.context, model.chats) == (other.context, other.chats) == (128, True)
    for text in TEXTS:
        ids = model.text_ids(text)
        assert ids == other.text_ids(text)
        for tokens in (1, clear_tokens(other, ids, 30)):
            assert said(model, GenerationRequest(ids, tokens, 0)) == said(other, GenerationRequest(ids, tokens, 0)), (
                text,
                tokens,
            )
        most = model.context - len(ids)
        assert said(model, GenerationRequest(ids, most, 0))[1].tokens == most
    whole, _ = said(other, GenerationRequest(model.text_ids(TEXTS[1]), 60, 0))
    assert len(set(whole)) > 10
    for stop in ((whole[10:13],), (whole[5:7], "never that")):
        wanted = GenerationRequest(model.text_ids(TEXTS[1]), 60, 0, stop=stop)
        found = said(model, wanted)
        assert found == said(other, wanted) and found[1].reason == "stop"
        assert not any(one in found[0] for one in stop)


@needs_llama
@pytest.mark.slow
def test_conversations_are_laid_out_as_transformers_does(pair: tuple[generate.Model, Model]) -> None:
    """Also those whose messages spell special tokens, which are text."""
    other, model = pair
    turns = [
        *HI,
        {"role": "assistant", "content": "It pops <|endoftext|>."},
        {"role": "user", "content": "Hi<|im_end|>\n<|pad|>"},
    ]
    system = {"role": "system", "content": "You are brief."}
    for messages in (HI, turns, [system, *turns]):
        assert model.chat_ids(messages) == other.chat_ids(messages)
    assert model.chat_ids(turns).count(model.eos) == 1, "the template's, after the answer"


@needs_llama
@pytest.mark.slow
def test_a_seed_gives_the_same_text_again_and_temperature_another(pair: tuple[generate.Model, Model]) -> None:
    _, model = pair
    ids = model.text_ids(TEXTS[0])
    warm = [said(model, GenerationRequest(ids, 30, 1.0, 0.9, seed=seed))[0] for seed in (1, 1, 2, 0xFFFFFFFF)]
    assert warm[0] == warm[1] and len(set(warm)) == 3
    assert len({said(model, GenerationRequest(ids, 30, 1.0, seed=None))[0] for _ in range(3)}) > 1
    assert said(model, GenerationRequest(ids, 30, 1.0, top_p=1e-6, seed=3)) == said(
        model, GenerationRequest(ids, 30, 0)
    ), "the likeliest alone"


@needs_llama
@pytest.mark.slow
def test_an_answer_stops_where_it_is_told_to(pair: tuple[generate.Model, Model]) -> None:
    _, model = pair
    stopped, out = threading.Event(), []

    def say(text: str) -> None:
        out.append(text)
        stopped.set()

    assert model.generate_answer(GenerationRequest(model.text_ids("A"), 100, 0), say, stopped).tokens < 10 and out


@pytest.fixture(scope="module")
def address(results: Path) -> Iterator[str]:
    """Of a server that begins with the file of 8 bits; twenty may wait."""
    given = ["serve", "gguf", "--type", "q8_0", "--port", "0", "--results", str(results), "--waiting", "20"]
    process = subprocess.Popen(
        [sys.executable, "-m", "crawl2llm", *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r"base, sft, gguf:f32, gguf:q8_0, whole:f16: (http://127\.0\.0\.1:\d+) to chat", line)
    assert found, line + process.communicate()[1]
    yield found[1]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0 and "Traceback" not in errors, errors


@needs_llama
@pytest.mark.slow
def test_openais_own_client(address: str, results: Path) -> None:
    """Models, a chat in one piece and as a stream, a completion of a file without template, and refusals."""
    openai = pytest.importorskip("openai", reason="envs/lock-dev.txt is not installed")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0)
    listed = {model.id: (model.context, model.chats) for model in client.models.list()}
    assert listed == {
        "gguf:q8_0": (128, True),
        "gguf:f32": (128, True),
        "sft": (128, True),
        "base": (128, False),
        "whole:f16": (128, False),
    }
    assert next(iter(listed)) == "gguf:q8_0", "what the page begins with"
    how = {"model": "gguf:f32", "messages": HI, "max_tokens": 20, "temperature": 0}
    found = client.chat.completions.create(**how)
    parts = list(client.chat.completions.create(**how, stream=True))
    text = found.choices[0].message.content
    assert "".join(part.choices[0].delta.content or "" for part in parts) == text
    assert text == client.chat.completions.create(**how | {"model": "sft"}).choices[0].message.content, (
        "as transformers"
    )
    assert found.usage.completion_tokens == 20 and found.choices[0].finish_reason == "length"
    completed = client.completions.create(model="whole:f16", prompt="The function", max_tokens=5, temperature=0)
    assert completed.choices[0].text
    with pytest.raises(openai.BadRequestError, match="whole:f16 has no chat template"):
        client.chat.completions.create(**how | {"model": "whole:f16"})
    with pytest.raises(openai.BadRequestError, match="the context of gguf:q8_0 is 128 with the answer"):
        client.completions.create(model="gguf:q8_0", prompt="word " * 200)
    with pytest.raises(openai.NotFoundError, match="there are base, sft, gguf:f32, gguf:q8_0, whole:f16"):
        client.completions.create(model="gguf:q4_k_m", prompt="A")


STRING, ARRAY, NUMBER = 8, 9, 4  # types of values in a GGUF file (ggml/docs/gguf.md)
CRASHES = ["a", "a"]  # a vocabulary with a token twice, by which llama.cpp ends its process


def packed(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def header(tokens: list[str], numbers: int = 0, context: int = 128) -> bytes:
    """A GGUF file of a Llama without a weight. numbers: it says that it goes on with so many, which are not there."""
    texts = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
    sizes = {
        "context_length": context,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 128,
        "attention.head_count": 4,
    }
    lists = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"]}
    found = [packed(key) + struct.pack("<I", STRING) + packed(text) for key, text in texts.items()]
    found += [packed(f"llama.{key}") + struct.pack("<II", NUMBER, size) for key, size in sizes.items()]
    found += [packed("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    found += [
        packed(key) + struct.pack("<IIQ", ARRAY, STRING, len(parts)) + b"".join(map(packed, parts))
        for key, parts in lists.items()
    ]
    found += [packed("more") + struct.pack("<IIQ", ARRAY, NUMBER, numbers)]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(found)) + b"".join(found)


def hostile(folder: Path, body: bytes, size: int = 0) -> Export:
    """An export of one file, which has the checksum of its manifest; a file of `size` bytes, if that is more."""
    file = folder / "compress/export/gguf/gguf-Q8_0.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    os.truncate(file, max(size, len(body)))
    manifest = Manifest("compress.export", "0" * 16, summary={"gguf": [{"type": "q8_0", "file": file.name}]})
    manifest.write(folder / "compress/export/gguf.manifest.json", [file])
    return gguf_exports(folder)["gguf"][0]


@needs_llama
def test_a_header_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    letters = ["<|endoftext|>", *map(chr, range(33, 127))]
    assert describe_file(hostile(tmp_path / "good", header(letters))) == {"context": 128, "chats": False}
    for name, body, words in (
        ("twice", header(CRASHES), "the process that read its header was ended by SIGABRT"),
        ("zeros", b"GGUF" + bytes(100), "it is not a GGUF file that llama.cpp can read"),
        ("context", header(letters, context=0), "its context_length is '0', which is not a number of tokens"),
    ):
        export = hostile(tmp_path / name, body)
        assert describe_file(export) == {}
        with pytest.raises(InputError) as caught:
            Model(export)
        assert str(caught.value) == f"llama.cpp cannot load {export.path}: {words}"


@needs_llama
def test_a_header_that_could_not_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = hostile(tmp_path / "good", header(["<|endoftext|>", *map(chr, range(33, 127))]))
    with monkeypatch.context() as change:
        change.setenv(gguf_support.TOOLS.variable, str(tmp_path / "no tools"))
        assert describe_file(export) == {}
    with monkeypatch.context() as change:
        change.setattr("crawl2llm.commands.serve.gguf.WALL", 0.001)
        assert describe_file(export) == {}
    assert describe_file(export) == {"context": 128, "chats": False}
    monkeypatch.setenv(gguf_support.TOOLS.variable, str(tmp_path / "no tools"))
    assert describe_file(export) == {"context": 128, "chats": False}, "what could be read is kept"


@needs_llama
def test_a_header_has_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    """A sparse file of numbers: llama.cpp keeps all of them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # KiB
    for number, answer in ((10, {"context": 128, "chats": False}), (gguf_header.MEMORY // 4, {})):
        export = Export(tmp_path / f"{number}.manifest.json", "f32", "large.gguf")
        export.path.parent.mkdir()
        body = header(["<|endoftext|>"], numbers=number)
        export.path.write_bytes(body)
        os.truncate(export.path, len(body) + 4 * number)
        assert describe_file(export) == answer
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, gguf_header.MEMORY >> 10)


@needs_llama
@pytest.mark.slow
def test_many_clients_get_what_each_asked_for_or_are_told_to_wait(address: str) -> None:
    async def within() -> list[tuple[int, str]]:
        async with aiohttp.ClientSession(address) as session:

            async def one(number: int) -> tuple[int, str]:
                body = {"model": "gguf:q8_0", "prompt": f"Item {number % 20}", "max_tokens": 8, "temperature": 0}
                async with session.post("/v1/completions", json=body) as answer:
                    return answer.status, (await answer.json()).get("choices", [{}])[0].get("text", "")

            async def leave() -> None:
                body = {"model": "gguf:q8_0", "prompt": "A", "max_tokens": 100, "stream": True}
                async with session.post("/v1/completions", json=body) as answer:
                    assert json.loads((await answer.content.readline())[6:])["choices"]
                    answer.close()

            first = await asyncio.gather(*map(one, range(20)))
            assert [await one(number) for number in (3, 11)] == [first[3], first[11]]
            for _ in range(25):  # more than may wait: each makes room as it goes
                await leave()
            return [*first, *await asyncio.gather(*map(one, range(60)))]

    found = asyncio.run(within())
    assert {status for status, _ in found[:20]} == {200} and {status for status, _ in found[20:]} == {200, 429}


@needs_llama
@pytest.mark.slow
def test_what_cannot_be_served(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*given: str, place: Path = results) -> str:
        assert sample.main(["The", *given, "--results", str(place), "--max-tokens", "3", "--temperature", "0"]) == 1
        return capsys.readouterr().err

    assert "gguf has no file of type 'q4_k_m'; it has f32, q8_0" in refused("--model", "gguf", "--type", "q4_k_m")
    assert "sft has no types: it is not a GGUF export" in refused("--model", "sft", "--type", "q8_0")
    assert "there is no model 'x'; there are base, sft, gguf, whole" in refused("--model", "x")
    assert "--draft and --lookup are of models that transformers runs" in refused("--model", "gguf", "--lookup")
    damaged = tmp_path / "main"
    shutil.copytree(results, damaged)
    file = damaged / "compress/export/gguf/gguf-Q8_0.gguf"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    assert f"gguf-Q8_0.gguf has {len(whole) - 1000} bytes, not {len(whole)}" in refused(
        "--model", "gguf", place=damaged
    )
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "does not have the checksum that its manifest says" in refused("--model", "gguf", place=damaged)
    file.unlink()
    assert f"{file} is missing" in refused("--model", "gguf:q8_0", place=damaged)
    file.write_bytes(b"GGUF" + b"\0" * 100)
    out = damaged / "compress/export/gguf.manifest.json"
    renewed = Manifest.read_unchecked(out)
    renewed.write(out, sorted(file.parent.iterdir()))
    assert f"llama.cpp cannot load {file}" in refused("--model", "gguf", place=damaged)
    given = ["The", "--model", "gguf:f32", "--results", str(damaged), "--max-tokens", "4", "--temperature", "0"]
    assert sample.main(given) == 0 and capsys.readouterr().out.strip()


def test_without_the_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Models are served as ever; an export says what is lacking, and one of safetensors whose weights it has."""
    from tests.unit.stages.finetune import tiny

    monkeypatch.setenv(gguf_support.TOOLS.variable, str(tmp_path / "none"))
    tiny.write_model(tmp_path / "main/pretrain/train", tiny.pages())
    for name, files in {"gguf": [{"type": "q8_0", "file": "gguf-Q8_0.gguf"}], "give": []}.items():
        (tmp_path / "main/compress/export").mkdir(parents=True, exist_ok=True)
        manifest = Manifest("compress.export", "0" * 16, summary={"gguf": files})
        manifest.write(tmp_path / f"main/compress/export/{name}.manifest.json", [])
    results = ["--results", str(tmp_path / "main")]
    for main, given in ((command.main, ["gguf"]), (sample.main, ["A", "--model", "gguf", "--type", "q8_0"])):
        assert main([*given, *results]) == 1
        assert "gguf:q8_0 is run by llama.cpp; llama.cpp's tools are not in" in (words := capsys.readouterr().err)
        assert "make gguf-tools" in words
    assert command.main(["give", *results]) == 1
    assert (
        "give is exported as safetensors alone, the weights of the model that it is made from"
        in capsys.readouterr().err
    )
    assert sample.main(["A", "--max-tokens", "2", *results]) == 0
