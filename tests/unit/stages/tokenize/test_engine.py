"""The engines of tokenize.encode: tiktoken gives the ids of `tokenizers` for every pre-tokenizer that train can write, or is not used."""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import tiktoken
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from crawl2llm.core.errors import InputError
from crawl2llm.stages.tokenize import ranks
from crawl2llm.stages.tokenize.engine import Engine, choose_engine, reference_engine, tiktoken_engine
from crawl2llm.stages.tokenize.train import untrained_tokenizer
from crawl2llm.training.special_tokens import EOS, SPECIAL

CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
# What is cut in its own way, or joins its neighbours: spaces of all kinds, line ends, contractions, numbers of other
# scripts, combining marks, joiners, bidirectional marks, flags, unassigned and private characters, bytes of control.
NASTY = [
    " ", "  ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029",
    "\u202f", "\u3000", "\u180e", "\u200b", "\ufeff", "'", "'s", "'S", "'ll", "'re", "’s", "don't", "l'eau", "a", "Z", "ß", "İ",
    "0", "1", "12", "123", "1234", "3.14", "٣", "४५", "Ⅷ", "½", "²", "𝟘", "一", "〇", "e\u0301", "\u0301", "\u200d", "\u200c",
    "\u202e", "👩\u200d👩\u200d👧", "🇩🇪", "✊🏽", "狐", "한국", "가", "ไทย", "עברית", "हिन्दी", "\U0010ffff", "\ue000", "\u0378", "\x00",
    "\x7f", ".", "--", "<|", "|>", "<|endoftext|>", "<|pad|>", "<|endoftext", "_", "Ġ", "Ċ", "▁", "ﬁ", "ǅ", "ˈ", "ª", "#", "\\", '"',
]  # fmt: skip
WORDS = [
    "return", "self", " the", " The", "    ", "tokens", "ing", "\n    def ", "'ve", "'m", "'d", "'t", "2024", " 1999", "  7",
]  # fmt: skip
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.lists(st.sampled_from(NASTY), max_size=30).map("".join),
    st.lists(st.one_of(st.sampled_from(NASTY), st.sampled_from(CHARACTERS)), max_size=20).map("".join),
    st.lists(st.sampled_from([*WORDS, *NASTY]), max_size=30).map("".join),
    st.builds(lambda text, times: text * times, st.sampled_from(NASTY), st.integers(1, 400)),
)


# (digits, marks) of tokenize.train
CUTS = [*((digits, "separate") for digits in range(10)), *((digits, "letters") for digits in (0, 1, 3))]


@pytest.fixture(scope="session")
def both() -> Callable[[tuple[int, str]], tuple[Engine, Engine, Tokenizer]]:
    """CUTS → (tokenizers, tiktoken, the tokenizer): a vocabulary of what is nasty, so that a piece cut elsewhere has other ids."""
    pick = random.Random(0)  # noqa: S311
    texts = ["".join(pick.choices([*NASTY, *WORDS], k=pick.randint(1, 12))) for _ in range(3000)]
    alphabet, found = sorted(pre_tokenizers.ByteLevel.alphabet()), {}
    for digits in CUTS:
        made = untrained_tokenizer(*digits)
        trainer = trainers.BpeTrainer(
            vocab_size=3000,
            special_tokens=list(SPECIAL),
            initial_alphabet=alphabet,
            show_progress=False,
            min_frequency=2,
        )
        made.train_from_iterator(texts, trainer)
        found[digits] = reference_engine(made), tiktoken_engine(made), made
    return found.__getitem__


@pytest.mark.parametrize("digits", CUTS)
@settings(max_examples=400, deadline=None)  # the machine may be busy
@given(st.lists(TEXT, min_size=1, max_size=4))
@example(
    [
        "1  2",
        "a  1",
        "a \n 1",
        " 1",
        "  a",
        "\n\n1",
        "x 12345 ",
        "'1s",
        "1's",
        " ",
        "  ",
        "",
        "a\u0301 \u0301",
        "1\u0301",
    ]
)
@example(["The end is not <|endoftext|> here, nor <|pad|>.", "<|endoftext|><|endoftext|>", "<|endoftext|>\n\n  1"])
def test_tiktoken_gives_the_same_ids(
    both: Callable[[tuple[int, str]], tuple[Engine, Engine, Tokenizer]], digits: tuple[int, str], texts: list[str]
) -> None:
    exact, quick, tokenizer = both(digits)
    wanted = [ids.tolist() for ids in exact.encode(texts)]
    assert [ids.tolist() for ids in quick.encode(texts)] == wanted
    assert [tokenizer.decode(ids, skip_special_tokens=False) for ids in wanted] == texts


@pytest.mark.parametrize("category", [r"\p{L}", r"\p{M}", r"\p{N}", r"\s"])
def test_both_hold_the_same_characters_for_letters_marks_numbers_and_spaces(category: str) -> None:
    """The patterns distinguish nothing else; the libraries have Unicode tables of their own."""
    bytes_alone = {bytes([number]): number for number in range(256)}
    quick = tiktoken.Encoding("characters", pat_str=category, mergeable_ranks=bytes_alone, special_tokens={})
    found = set(bytes(quick.encode_ordinary("".join(CHARACTERS))).decode())
    split = pre_tokenizers.Split(Regex(rf"{category}+"), behavior="removed", invert=True)
    wanted: set[str] = set()
    for start in range(0, len(CHARACTERS), 1 << 16):
        for piece, _ in split.pre_tokenize_str("".join(CHARACTERS[start : start + (1 << 16)])):
            wanted.update(piece)
    assert found == wanted and len(found) > 20


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "ab " * 100_000, "狐" * 100_000, "1" * 300_000, "-" * 300_000, " " * 300_000, "\n" * 300_000 + "x"],
    ids=["letters", "words", "ideographs", "digits", "dashes", "spaces", "lines"],
)
def test_a_page_that_is_one_long_word(
    both: Callable[[tuple[int, str]], tuple[Engine, Engine, Tokenizer]], text: str
) -> None:
    exact, quick, _ = both((3, "separate"))
    assert quick.encode([text])[0].tolist() == exact.encode([text])[0].tolist()


def test_what_tiktokens_expression_gives_up_on_is_encoded_all_the_same(
    both: Callable[[tuple[int, str]], tuple[Engine, Engine, Tokenizer]],
) -> None:
    """A million spaces before a word are more than its stack of states holds."""
    exact, quick, tokenizer = both((3, "separate"))
    text = "a" + " " * 1_100_000 + "b"
    encoding = tiktoken.Encoding(
        "spaces",
        pat_str=ranks.piece_pattern(json.loads(tokenizer.to_str())["pre_tokenizer"]),
        mergeable_ranks={bytes([number]): number for number in range(256)},
        special_tokens={EOS: 256},
    )
    with pytest.raises(ValueError, match="Regex error while tokenizing"):
        encoding.encode_to_numpy(text, disallowed_special=())
    assert quick.encode([text])[0].tolist() == exact.encode([text])[0].tolist()


def test_alphabet_is_the_one_of_tokenizers() -> None:
    assert sorted(ranks.byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    decoder = decoders.ByteLevel()
    for character, byte in ranks.byte_alphabet().items():
        if byte < 128:
            assert decoder.decode([character]) == chr(byte)


def test_a_vocabulary_whose_entry_has_two_origins_is_refused() -> None:
    """`tokenizers` makes abc of ab and c; by ranks alone it would come from a and bc where bc is older than ab."""
    byte = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(byte)}
    vocabulary |= {"bc": 256, "ab": 257, "abc": 258}
    model = models.BPE(vocab=vocabulary, merges=[("b", "c"), ("a", "b"), ("ab", "c")])
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens([EOS])
    quick = tiktoken.Encoding(
        "two",
        pat_str=r"\w+",
        mergeable_ranks={
            **{bytes([ranks.byte_alphabet()[c]]): n for c, n in list(vocabulary.items())[:256]},
            b"bc": 256,
            b"ab": 257,
            b"abc": 258,
        },
        special_tokens={},
    )
    assert made.encode("abc").tokens == ["a", "bc"] and quick.encode_ordinary("abc") == [258]
    with pytest.raises(ranks.InexpressibleError, match="b'abc' can come from more than one pair"):
        ranks.byte_ranks(json.loads(made.to_str()))


STRINGS = ["".join(letters) for length in range(1, 7) for letters in itertools.product("abc", repeat=length)]


@settings(max_examples=120, deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9))
def test_whatever_merges_are_accepted_give_the_same_ids_for_every_string(picked: list[tuple[int, int]]) -> None:
    """Merges that no training would make, too: the proof is tried on all short strings of three letters."""
    entries, merges = ["a", "b", "c"], []
    for left, right in picked:
        pair = entries[left % len(entries)], entries[right % len(entries)]
        if pair not in merges:
            merges.append(pair)
            if (entry := "".join(pair)) not in entries:
                entries.append(entry)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {entry: number for number, entry in enumerate([*alphabet, *entries[3:]])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens([EOS])
    try:
        quick = tiktoken_engine(made)
    except ranks.InexpressibleError:
        event("refused")
        return
    event("accepted")
    wanted = [ids.tolist() for ids in reference_engine(made).encode(STRINGS)]
    assert [ids.tolist() for ids in quick.encode(STRINGS)] == wanted


def changed(tokenizer: Tokenizer, change: Callable[[dict[str, Any]], Any]) -> Tokenizer:
    given = json.loads(tokenizer.to_str())
    change(given)
    return Tokenizer.from_str(json.dumps(given))


INEXPRESSIBLE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "normalizer": (lambda given: given.update(normalizer={"type": "NFC"}), "it has normalizer"),
    "prefix": (lambda given: given.update(pre_tokenizer={"type": "Whitespace"}), "does not end with GPT-2's"),
    "none": (lambda given: given.update(pre_tokenizer=None), "does not end with GPT-2's"),
    "words": (
        lambda given: given["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": r"\w+"}),
        "groups of digits",
    ),
    "space": (
        lambda given: given["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
        "GPT-2's regular",
    ),
    "dropout": (lambda given: given["model"].update(dropout=0.1), "its model has dropout"),
    "added": (lambda given: given["added_tokens"][1].update(special=False), "added tokens that are not special"),
    "order": (lambda given: given["model"].update(merges=given["model"]["merges"][::-1]), "the order of its merges"),
}


@pytest.mark.parametrize(("change", "reason"), INEXPRESSIBLE.values(), ids=INEXPRESSIBLE)
def test_what_tiktoken_cannot_express_is_encoded_by_tokenizers(
    tokenizer: Tokenizer, change: Callable[[dict[str, Any]], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = changed(tokenizer, change)
    with caplog.at_level(logging.INFO, "crawl2llm"):
        assert choose_engine("auto", other).name == "tokenizers"
    assert reason in caplog.text
    with pytest.raises(
        InputError, match=r"tokenize\.encode\.engine is tiktoken, which cannot encode as this tokenizer"
    ):
        choose_engine("tiktoken", other)


def test_engine_by_name(tokenizer: Tokenizer) -> None:
    assert [choose_engine(name, tokenizer).name for name in ("auto", "tiktoken", "tokenizers")] == [
        "tiktoken",
        "tiktoken",
        "tokenizers",
    ]


def test_any_number_of_threads_gives_the_same(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} words of {name}" for number in range(200) for name in NASTY[:20]]
    found = []
    for number in ("1", "3"):
        monkeypatch.setenv("RAYON_NUM_THREADS", number)
        found.append([ids.tolist() for ids in tiktoken_engine(tokenizer).encode(texts)])
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(3))
def test_every_vocabulary_that_is_trained_can_be_expressed(seed: int) -> None:
    """Small alphabets make many overlapping merges."""
    pick = random.Random(seed)  # noqa: S311
    texts = ["".join(pick.choices("aab b1", k=pick.randint(1, 60))) for _ in range(400)]
    made = untrained_tokenizer(3)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False)
    )
    exact, quick = reference_engine(made), tiktoken_engine(made)
    assert [ids.tolist() for ids in quick.encode(texts)] == [ids.tolist() for ids in exact.encode(texts)]
