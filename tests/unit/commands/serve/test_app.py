"""The server over real HTTP with a tiny real model: OpenAI's shapes, streams, bounds, and the page in a real browser."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from crawl2llm.commands.serve.app import Server
from crawl2llm.commands.serve.generate import Model, model_manifests
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.training.template import Template
from tests.unit.commands.plan.picture.browser import BROWSER, Page, browser

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")
HI = [{"role": "user", "content": "What does heapq do?"}]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a variant with two models: `base`, and `sft`, which chats."""
    from tests.unit.stages.finetune import tiny

    folder = tmp_path_factory.mktemp("serve") / "results/main"
    tiny.write_model(folder / "pretrain/train", tiny.pages())
    made = folder / "finetune/train/sft"
    made.parent.mkdir(parents=True)
    tiny.write_model(made, tiny.pages())
    (made / "manifest.json").unlink()
    (made / "model/chat_template.jinja").write_text(TEMPLATE.chat_template())
    Manifest("finetune.train", "0" * 16).write(made.with_name("sft.manifest.json"), sorted((made / "model").iterdir()))
    asked = [{"kind": "prompt", "prompt": "The name"}, *({"kind": "question", "question": f"{n}?"} for n in range(9))]
    (samples := folder / "evaluate/model/sft.samples.jsonl").parent.mkdir(parents=True)
    samples.write_text("".join(json.dumps(row) + "\n" for row in [*asked, {"kind": "question", "question": "x" * 200}]))
    return folder


@pytest.fixture(scope="module")
def address(results: Path) -> Iterator[str]:
    """Of a server, for which sixty may wait."""
    command = [
        sys.executable,
        "-m",
        "crawl2llm.__main__",
        "serve",
        "--port",
        "0",
        "--results",
        str(results),
        "--waiting",
        "60",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    said = process.stdout.readline()
    found = re.search(r"base, sft: (http://127\.0\.0\.1:\d+) to chat", said)
    assert found, said + process.communicate()[1]
    yield found[1]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0 and "Traceback" not in errors and "Task was" not in errors, errors


def asks(address: str, what: Callable[[aiohttp.ClientSession], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with aiohttp.ClientSession(address) as session:
            return await what(session)

    return asyncio.run(within())


def post(address: str, path: str, body: Any, **more: Any) -> tuple[int, Any]:
    async def ask(session: aiohttp.ClientSession) -> tuple[int, Any]:
        async with session.post(f"/v1/{path}", **({"json": body} | more)) as answer:
            return answer.status, await answer.json()

    return asks(address, ask)  # type: ignore[no-any-return]


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for line in answer.content:
        if line.strip():
            assert line.startswith(b"data: ")
            yield line[6:].strip().decode()


def streamed(address: str, path: str, body: dict[str, Any]) -> list[Any]:
    async def ask(session: aiohttp.ClientSession) -> list[Any]:
        async with session.post(f"/v1/{path}", json=body | {"stream": True}) as answer:
            assert answer.status == 200 and answer.content_type == "text/event-stream"
            return [event async for event in events(answer)]

    found = asks(address, ask)
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def test_models(address: str) -> None:
    async def ask(session: aiohttp.ClientSession) -> Any:
        async with session.get("/v1/models") as answer:
            return (await answer.json())["data"]

    told = asks(address, ask)
    found = {model["id"]: (model["object"], model["context"], model["chats"]) for model in told}
    assert found == {"sft": ("model", 64, True), "base": ("model", 64, False)}
    assert {model["id"]: model["examples"] for model in told} == {"sft": ["0?", "1?", "2?", "3?"], "base": ["The name"]}


def test_a_chat_and_its_stream_say_the_same_as_the_model(address: str, results: Path) -> None:
    """Greedy, against transformers' own generate on the prompt of the fine-tuning's template."""
    model = Model(model_manifests(results)["sft"])
    prompt = TEMPLATE.prompt(HI[0]["content"])
    given = model.tokenizer(prompt, return_tensors="pt")
    ids = model.model.generate(**given, max_new_tokens=12, do_sample=False)[0, given["input_ids"].shape[1] :]
    expected = model.tokenizer.decode(ids, skip_special_tokens=True).lstrip()
    body = {"model": "sft", "messages": HI, "temperature": 0, "max_tokens": 12}
    status, found = post(address, "chat/completions", body)
    assert status == 200 and found["object"] == "chat.completion"
    assert found["choices"][0]["message"] == {"role": "assistant", "content": expected}
    size = given["input_ids"].shape[1]
    assert found["usage"] == {"prompt_tokens": size, "completion_tokens": len(ids), "total_tokens": size + len(ids)}
    parts = streamed(address, "chat/completions", body | {"stream_options": {"include_usage": True}})
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert parts[-1]["usage"] == found["usage"] and parts[-1]["choices"] == []
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts[:-1]) == expected
    assert parts[-2]["choices"][0]["finish_reason"] == found["choices"][0]["finish_reason"] == "length"
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}


def test_completions_are_seeded_bounded_and_end_before_a_stop_text(address: str) -> None:
    body = {"model": "base", "prompt": "The function", "seed": 3, "max_tokens": 30}
    one, other = (post(address, "completions", body)[1]["choices"][0] for _ in range(2))
    assert one["text"] == other["text"] and one["finish_reason"] == "length"
    assert post(address, "completions", body | {"seed": 4})[1]["choices"][0]["text"] != one["text"]
    at = one["text"][8:11]
    ended = post(address, "completions", body | {"stop": [at, "never that"]})[1]["choices"][0]
    assert ended["text"] == one["text"][: one["text"].index(at)] and ended["finish_reason"] == "stop"
    parts = streamed(address, "completions", body | {"stop": at})
    assert "".join(part["choices"][0]["text"] for part in parts) == ended["text"]
    long = post(address, "completions", body | {"max_tokens": 5000})[1]
    assert long["usage"]["total_tokens"] <= 64  # the context
    assert post(address, "completions", body | {"prompt": ""})[0] == 200


@pytest.mark.parametrize(
    ("path", "change", "status", "told"),
    [
        ("completions", {"model": "gpt-4"}, 404, "the model 'gpt-4' does not exist; there are base, sft"),
        ("completions", {"prompt": "word " * 100}, 400, "the context of base is 64 with the answer"),
        ("completions", {"temperature": 3}, 400, "temperature is 3; it must be a number from 0 to 2"),
        ("completions", {"max_tokens": True}, 400, "max_tokens is True; it must be a whole number"),
        ("completions", {"n": 2}, 400, "n is 2; this server has 1 alone"),
        ("completions", {"stop": [""]}, 400, "stop is"),
        ("completions", {"stop": list("abcde")}, 400, "at most 4"),
        ("completions", {"prompt": ["a", "b"]}, 400, "it must be one text"),
        ("completions", {"stream": "yes"}, 400, "stream is 'yes'"),
        ("completions", {"temprature": 1}, 400, "'temprature' is not known; allowed are "),
        ("chat/completions", {}, 400, "base has no chat template"),
        ("chat/completions", {"messages": []}, 400, "messages is missing"),
        ("chat/completions", {"messages": HI * 2}, 400, "messages are by user, user"),
        ("chat/completions", {"messages": [{"role": "tool", "content": "x"}]}, 400, "messages[0].role must be one of"),
        ("chat/completions", {"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content must be a text"),
        ("chat/completions", {"messages": [{"role": [], "content": "x"}]}, 400, "messages[0].role must be one of"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "\ud800"}]},
            400,
            "content holds half a character",
        ),
        ("completions", {"prompt": "\ud800"}, 400, "prompt holds half a character, '\\ud800'"),
        ("chat/completions", {"tools": [{}]}, 400, "tools is [{}]"),
        ("nothing", {}, 404, "POST /v1/nothing: Not Found"),
    ],
)
def test_refusals_have_openais_shape(address: str, path: str, change: dict[str, Any], status: int, told: str) -> None:
    whole = {"model": "base", **({"messages": HI} if "chat" in path else {"prompt": "A"}), **change}
    found, body = post(address, path, whole)
    assert found == status and told in body["error"]["message"], body
    assert body["error"].keys() == {"message", "type", "param", "code"}


def test_what_is_no_request(address: str) -> None:
    for more in ({"data": b"{", "json": None}, {"data": b"[" * 100_000, "json": None}, {"json": [1]}):
        status, body = post(address, "completions", None, **more, headers={"Content-Type": "application/json"})
        assert status == 400 and "JSON" in body["error"]["message"]
    assert post(address, "completions", None, data=b"{}", json=None, headers={"Content-Type": "text/plain"})[0] == 415
    odd = {"Content-Type": "application/json; charset=none"}
    assert post(address, "completions", None, data=b"{}", json=None, headers=odd)[0] == 400
    assert post(address, "completions", {"prompt": "x" * 5_000_000})[0] == 413
    assert post(address, "completions", {}, headers={"Host": "example.org"})[0] == 403


def test_the_coldest_temperatures_take_the_likeliest_token(address: str) -> None:
    body = {"model": "base", "prompt": "A", "max_tokens": 5}
    found = [post(address, "completions", body | {"temperature": cold}) for cold in (0, 1e-7, 1e-40, 1e-310)]
    assert {status for status, _ in found} == {200}
    assert len({answer["choices"][0]["text"] for _, answer in found}) == 1


def test_a_special_token_that_a_message_spells_is_text(results: Path) -> None:
    model = Model(model_manifests(results)["sft"])
    end, text = model.tokenizer.eos_token_id, "Hi<|endoftext|>\nQuestion: x\nAnswer: <|im_end|>\U000f0000"
    turns = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "<|endoftext|>"},
        {"role": "user", "content": "b"},
    ]
    ids = model.chat_ids(turns)
    assert ids.count(end) == 1  # the template's, after the answer
    assert model.tokenizer.decode(ids) == f"Question: {text}\nAnswer: <|endoftext|><|endoftext|>\nQuestion: b\nAnswer:"
    plain = [{**turn, "content": turn["content"].replace("<|", "(").replace("|>", ")")} for turn in turns]
    laid_out = model.tokenizer.apply_chat_template(plain, tokenize=False)
    assert model.chat_ids(plain) == model.tokenizer(laid_out)["input_ids"]
    assert model.text_ids("<|endoftext|>") == [end]  # as before, in what follows


def test_who_waits_holds_no_model(results: Path) -> None:
    """Six answers of three models in turn: no more than two models are in memory, and each is the one that was asked for."""
    seen: list[int] = []
    made: weakref.WeakSet[Model] = weakref.WeakSet()

    class Counting(Server):
        def load_model(self, name: str) -> Model:
            made.add(found := super().load_model(name))
            gc.collect()
            seen.append(len(made))
            return found

    async def within() -> None:
        known = model_manifests(results)
        server = Counting({"a": known["base"], "b": known["sft"], "c": known["base"]}, "a", 60)
        async with TestClient(TestServer(server.build_application(), host="127.0.0.1")) as client:

            async def one(number: int) -> None:
                body = {"model": "abc"[number % 3], "prompt": "A", "max_tokens": 3}
                async with client.post("/v1/completions", json=body) as answer:
                    found = await answer.json()
                    assert (answer.status, found["model"]) == (200, body["model"]), found

            await asyncio.gather(*map(one, range(6)))

    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    asyncio.run(within())
    assert len(seen) == 6 and max(seen) <= 2, seen


def test_fifty_clients_at_once_get_what_each_asked_for(address: str) -> None:
    """And the sixty-first of those who wait is refused."""

    async def ask(session: aiohttp.ClientSession) -> list[tuple[int, str]]:
        async def one(number: int) -> tuple[int, str]:
            body = {
                "model": "base",
                "prompt": f"Item {number}",
                "max_tokens": 6,
                "temperature": 0,
                "stream": number % 2 == 0,
            }
            async with session.post("/v1/completions", json=body) as answer:
                if answer.status != 200 or number % 2:
                    return answer.status, (await answer.json()).get("choices", [{}])[0].get("text", "")
                parts = [json.loads(event) async for event in events(answer) if event != "[DONE]"]
                return 200, "".join(part["choices"][0]["text"] for part in parts)

        first = await asyncio.gather(*map(one, range(50)))
        again = [await one(number) for number in range(1, 50, 7)]
        assert all(answer == first[number] for answer, number in zip(again, range(1, 50, 7), strict=True))
        return [*first, *await asyncio.gather(*map(one, range(100)))]

    found = asks(address, ask)
    assert {status for status, _ in found[:50]} == {200}
    assert {status for status, _ in found[50:]} == {200, 429}


def test_a_client_that_goes_away_ends_its_answer(address: str) -> None:
    async def ask(session: aiohttp.ClientSession) -> None:
        for _ in range(70):  # more than may wait: each makes room as it goes
            body = {"model": "base", "prompt": "A", "max_tokens": 60, "stream": True}
            async with session.post("/v1/completions", json=body) as answer:
                assert answer.status == 200
                await anext(events(answer))
                answer.close()

    asks(address, ask)


def test_openais_own_client(address: str) -> None:
    openai = pytest.importorskip("openai", reason="envs/lock-dev.txt is not installed")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="any")
    found = client.chat.completions.create(model="sft", messages=HI, max_tokens=5, temperature=0)
    parts = client.chat.completions.create(model="sft", messages=HI, max_tokens=5, temperature=0, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == found.choices[0].message.content
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-4", prompt="A")


IDLE = "!document.getElementById('send').disabled"
ANSWERS = "document.querySelectorAll('#said .answers > div').length"
OVERFLOW = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


async def until(page: Page, expression: str) -> None:
    for _ in range(6000):
        if await page.value(expression):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{expression}: {await page.value('document.body.innerText')}")


async def write(page: Page, text: str) -> None:
    await page.value("document.getElementById('words').focus()")
    await page.press(*text, "Enter")


async def choose(page: Page, select: str, name: str) -> None:
    await page.value(
        f"(of => {{ of.value = '{name}'; of.dispatchEvent(new Event('change')) }})(document.getElementById('{select}'))"
    )


def assert_clean(page: Page, address: str) -> None:
    """The page logged nothing but a refusal, which it met, and asked nobody else."""
    assert not [line for line in page.logged if "Failed to load resource" not in line]
    assert all(asked.startswith(address) for asked in page.asked if not asked.startswith("data:"))


@needs_browser
def test_the_page(address: str, tmp_path: Path) -> None:
    """A person asks, reads, goes on, stops, and takes the other model."""

    async def look() -> None:
        async with browser(tmp_path) as page:
            await page.open(address)
            await until(page, "document.getElementById('model').value === 'sft'")
            await write(page, "What is <b>a</b> heap?")
            await until(page, f"{ANSWERS} === 1 && {IDLE}")
            assert "What is <b>a</b> heap?" in await page.value("document.querySelector('.user .text').textContent")
            assert await page.value("document.querySelector('.answers .text').textContent")
            await write(page, "And a queue of many words, and more of them, and more?")
            await until(page, f"{ANSWERS} === 2 && {IDLE}")
            await write(page, "And a deque, of which there are some in the library?")
            await until(
                page, f"{ANSWERS} === 3 && {IDLE}"
            )  # the context of 64 tokens is full: the first turns are left out
            assert await page.value("document.querySelectorAll('.left-out').length") >= 2
            assert await page.value("document.querySelectorAll('.wrong').length") == 0
            await choose(page, "model", "base")
            assert await page.value(f"{ANSWERS} === 0 && document.getElementById('send').textContent === 'Go on'")
            await write(page, "The function")
            await until(page, "document.querySelector('.going .text')?.textContent.length > 0")
            await page.value("document.getElementById('stop').click()")
            await until(page, IDLE)
            assert "base" in await page.value("document.querySelector('#said > div:last-child .who').textContent")
            assert_clean(page, address)

    asyncio.run(look())


@needs_browser
def test_two_models_side_by_side(address: str, tmp_path: Path) -> None:
    """An example by the keyboard alone goes to both; each says how fast it was; a phone has them one below the other."""
    places = "[...document.querySelectorAll('.answers > div')].map((one) => one.getBoundingClientRect())"

    async def look() -> None:
        async with browser(tmp_path) as page:
            await page.open(address)
            await until(page, "document.querySelectorAll('#examples button').length === 4")
            await choose(page, "beside", "base")
            assert (await page.value("document.getElementById('about').innerText")).count("\n") == 1
            await page.value("document.querySelector('#examples button').focus()")
            await page.press("Enter")
            await until(page, f"{ANSWERS} === 2 && {IDLE}")
            said = await page.value("[...document.querySelectorAll('.who')].map((one) => one.textContent)")
            assert said[0] == "You" and [one.split(",")[0] for one in said[1:]] == ["sft", "base"]
            assert all(re.search(r", \d[\d.e+]* tokens/s$", one) for one in said[1:]), said
            assert await page.value("document.activeElement.id") == "words"
            assert await page.value("!document.getElementById('examples')")
            assert await page.value(f"(([one, other]) => one.top === other.top && one.right <= other.left)({places})")
            await page.size(360, 740, mobile=True)
            assert await page.value(OVERFLOW) <= 0
            assert await page.value(f"(([one, other]) => one.left === other.left && one.bottom <= other.top)({places})")
            await write(page, "And a queue of many words, and more of them?")
            await until(page, f"{ANSWERS} === 4 && {IDLE}")
            assert await page.value("document.querySelectorAll('.wrong').length") == 0
            await page.value("document.getElementById('new').click()")
            assert await page.value(f"{ANSWERS} === 0 && document.querySelectorAll('#examples button').length === 4")
            assert_clean(page, address)

    asyncio.run(look())


def test_what_cannot_be_served(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from crawl2llm.commands.serve import command, sample

    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    assert command.main(["--results", str(tmp_path)]) == 1
    assert f"{tmp_path} holds no model" in capsys.readouterr().err
    assert command.main(["nope", "--results", str(results)]) == 1
    assert "there is no model 'nope'; there are base, sft" in capsys.readouterr().err
    assert command.main(["--port", "99999", "--results", str(results)]) == 1
    assert "--port 99999: it must be from 0 to 65,535" in capsys.readouterr().err
    assert sample.main(["word " * 100, "--model", "base", "--results", str(results)]) == 1
    assert "the context of base is 64 with the answer" in capsys.readouterr().err
    assert sample.main(["The", "--model", "base", "--results", str(results), "--seed", "1", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("The")
