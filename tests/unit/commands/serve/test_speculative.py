"""Speculative decoding with real tiny models: the same greedy texts as without, and bounds as without."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crawl2llm.commands.serve import sample
from crawl2llm.commands.serve.generate import AnswerEnd, GenerationRequest, Model, model_manifests
from crawl2llm.commands.serve.speculative import LOOKUP_TOKENS, Speculation
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from tests.unit.stages.finetune import tiny

TEXTS = [
    "heapq.heappush(heap, item)\n    Push item onto heap\n\nheapq.",
    "The function",
    "    def __init__(self, ",
    "a b a b a b a",
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with `base`, and `small`, which is half as deep and half as wide; nobody trained them, so that they seldom agree."""
    folder = tmp_path_factory.mktemp("ahead") / "results/main"
    tiny.write_model(folder / "pretrain/train", tiny.pages())
    made = tiny.write_model(folder / "finetune/train/small", tiny.pages(), hidden=32, layers=1)
    small = made.parent.with_name("small.manifest.json")
    Manifest("finetune.train", "0" * 16).write(small, sorted((made.parent / "model").iterdir()))
    made.unlink()
    return folder


@pytest.fixture(scope="module")
def ways(results: Path) -> dict[str, Model]:
    """`base` by itself, and with what says tokens ahead: another model, itself (which always agrees), and looking up."""
    found = model_manifests(results)
    base = found["base"]
    twin = Model(base)
    twin.ahead = {"assistant_model": Model(base).model}
    return {
        "plain": Model(base),
        "draft": Model(base, Speculation(draft=found["small"])),
        "twin": twin,
        "lookup": Model(base, Speculation(lookup=LOOKUP_TOKENS)),
        "far": Model(base, Speculation(lookup=40)),
    }


def texts(model: Model, text: str, tokens: int = 30, stop: tuple[str, ...] = ()) -> tuple[str, AnswerEnd]:
    """(text, why it ended) of a greedy answer."""
    said: list[str] = []
    ended = model.generate_answer(
        GenerationRequest(model.text_ids(text), tokens, temperature=0, stop=stop), said.append, threading.Event()
    )
    return "".join(said), ended


@pytest.mark.parametrize("way", ["draft", "twin", "lookup", "far"])
def test_greedy_texts_are_the_same(ways: dict[str, Model], way: str) -> None:
    for text in TEXTS:
        for tokens in (1, 2, 30):
            assert texts(ways[way], text, tokens) == texts(ways["plain"], text, tokens)
    full = ways["plain"].context - len(ways["plain"].text_ids(TEXTS[0]))
    assert texts(ways[way], TEXTS[0], full) == texts(ways["plain"], TEXTS[0], full), "up to the context's end"


@pytest.mark.parametrize("way", ["draft", "twin", "lookup"])
def test_a_stop_text_ends_it_where_it_ends_without(ways: dict[str, Model], way: str) -> None:
    whole, _ = texts(ways["plain"], TEXTS[1])
    stop = (whole[len(whole) // 2 :][:3],)
    found = texts(ways[way], TEXTS[1], stop=stop)
    assert found == texts(ways["plain"], TEXTS[1], stop=stop) and found[1].reason == "stop" and stop[0] not in found[0]


def test_a_seed_gives_the_same_text_again(ways: dict[str, Model]) -> None:
    for way in ("draft", "lookup"):
        said: list[list[str]] = [[], []]
        for into in said:
            wanted = GenerationRequest(ways[way].text_ids(TEXTS[1]), 20, temperature=1.0, seed=4)
            ways[way].generate_answer(wanted, into.append, threading.Event())
        assert said[0] and "".join(said[0]) == "".join(said[1])


def test_what_cannot_say_tokens_ahead_is_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tiny.write_model(tmp_path / "pretrain/train", {"one": "x y z " * 300})
    with pytest.raises(InputError, match="the draft model base has another vocabulary than base"):
        Model(model_manifests(results)["base"], Speculation(draft=other))
    assert Model(model_manifests(results)["base"], Speculation(draft=model_manifests(results)["base"])).ahead == {}, (
        "none for itself"
    )
    given = ["x", "--results", str(results), "--model", "base", "--max-tokens", "3", "--temperature", "0"]
    assert sample.main([*given, "--draft", "large"]) == 1
    assert "--draft: there is no model 'large'; there are base, small" in capsys.readouterr().err
    assert sample.main([*given, "--lookup", "-1"]) == 1
    assert "--lookup is -1; it must be at least 1" in capsys.readouterr().err
    said = []
    for more in ([], ["--draft", "small"], ["--lookup"]):
        assert sample.main([*given, *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
