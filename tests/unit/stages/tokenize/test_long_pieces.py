"""Pieces without end: a tokenizer is trained on parts of them, and training and encoding take time by their length, not by its square."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crawl2llm.core.root import ROOT
from crawl2llm.stages.tokenize import train, unigram
from crawl2llm.stages.tokenize.engine import reference_engine, tiktoken_engine
from crawl2llm.stages.tokenize.train import PIECE, cut_long_pieces, untrained_tokenizer

TEXTS = [
    (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    for name in ("stages/tokenize", "stages/ingest", "filters/dedup")
]
RUNS = {
    "letters": "x", "spaces": " ", "ideographs": "狐", "digits": "7", "marks": "\u0301", "emoji": "🦊", "lines": "\n",
    "other spaces": "\u3000", "dashes": "-", "nulls": "\0", "apostrophes": "'s", "joined": "👩\u200d", "Thai": "ที่",
}  # fmt: skip
CUTS = [(3, "separate"), (0, "separate"), (3, "letters")]
TIMED = ("letters", "ideographs", "spaces", "joined")
LENGTH = 20_000  # characters of the shortest text that is timed
GROWTH = 4  # times as long is the longest
# Most times as long that it may take: the square would be 16, and what is fixed makes less of linear growth
SLOWER = 3 * GROWTH
SHORT = 0.2  # seconds of CPU that no ratio is asked of


def growth(seconds: Callable[[int], float]) -> bool:
    """Whether `seconds(n)` of CPU grows about as n does; the best of two."""
    rows = [(seconds(LENGTH), seconds(GROWTH * LENGTH)) for _ in range(2)]
    return min(long for _, long in rows) < max(SHORT, SLOWER * min(short for short, _ in rows))


def cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def learned(model: str, cut: tuple[int, str], texts: list[str], entries: int = 1200) -> Tokenizer:
    empty = untrained_tokenizer(*cut)
    return train.MODELS[model](cut_long_pieces(texts, unigram.piece_expression(empty)), empty, entries)


@pytest.mark.parametrize("model", train.MODELS)
@pytest.mark.slow
@pytest.mark.parametrize("kind", TIMED)
def test_training_takes_time_by_the_length_of_a_piece(model: str, kind: str) -> None:
    def seconds(length: int) -> float:
        text = (RUNS[kind] * length)[:length] + "y"
        return cpu(lambda: learned(model, (0, "separate"), [*TEXTS, text]))

    assert growth(seconds)


@pytest.fixture(scope="module", params=train.MODELS)
def encoder(request: pytest.FixtureRequest) -> Iterator[Tokenizer]:
    yield learned(request.param, (0, "letters"), TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TIMED)
def test_encoding_takes_time_by_the_length_of_a_piece(encoder: Tokenizer, kind: str) -> None:
    engines = [reference_engine(encoder)]
    if "merges" in encoder.to_str():
        engines.append(tiktoken_engine(encoder))
    for engine in engines:

        def seconds(length: int, encode: Callable[[list[str]], object] = engine.encode) -> float:
            return cpu(lambda: encode([(RUNS[kind] * length)[:length] + "y"]))

        assert growth(seconds), engine.name


@given(
    st.sampled_from(CUTS),
    st.lists(st.tuples(st.sampled_from([*RUNS.values(), " x", "a ", "1"]), st.integers(1, 1200)), max_size=6),
)
@example((3, "separate"), [("x", PIECE), (" ", 1), ("x", PIECE - 1), (" ", 1), ("x", PIECE)])
@example((3, "separate"), [(" ", PIECE + 1), ("x", 1)])
@example((3, "separate"), [("\x1c-", PIECE)])
def test_only_pieces_over_the_bound_are_cut(cut: tuple[int, str], runs: list[tuple[str, int]]) -> None:
    text = "".join(run * number for run, number in runs)
    pieces = unigram.piece_expression(untrained_tokenizer(*cut))
    parts = list(cut_long_pieces([text], pieces))
    assert "".join(parts) == text
    made = [piece for part in parts for piece in pieces.findall(part)]
    assert max(map(len, made), default=0) <= PIECE
    assert made == [piece[at : at + PIECE] for piece in pieces.findall(text) for at in range(0, len(piece), PIECE)]


def test_the_vocabulary_of_texts_without_long_pieces_is_the_same() -> None:
    for model, learn in train.MODELS.items():
        alone = learn(iter(TEXTS), untrained_tokenizer(3), 1200)
        assert learned(model, (3, "separate"), TEXTS).to_str() == alone.to_str()


def test_what_a_long_piece_repeats_is_learned() -> None:
    text = "狐狸" * 100_000
    for model in train.MODELS:
        made = learned(model, (3, "separate"), [*TEXTS, text])
        assert made.decode(made.encode(text).ids) == text and len(made.encode(text).ids) < len(text) / 3


def test_no_part_is_too_long_for_sentencepiece() -> None:
    """It would leave it out without a word."""
    alphabet = {byte: character for character, byte in train.ranks.byte_alphabet().items()}
    longest = max(
        len("".join(alphabet[byte] for byte in (run * PIECE)[:PIECE].encode()).encode()) for run in RUNS.values()
    )
    assert 4000 < longest <= 4192
