"""evaluate.items as a program, on encoded pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats.documents import DOCUMENT, SPLITS, Writer, document_id, rows
from crawl2llm.formats.public_tasks.measures import HEADLINES, QUESTIONS
from crawl2llm.stages.evaluate import items as made_by
from crawl2llm.stages.evaluate.documents import choose_by_hash, document_tokens, text_of
from crawl2llm.stages.evaluate.sentence_words import Text
from crawl2llm.stages.evaluate.settings import ItemsSettings
from crawl2llm.stages.evaluate.tasks import MAKERS, Maker
from crawl2llm.stages.tokenize.train import MODELS, untrained_tokenizer
from tests.unit.stages.evaluate.conftest import encoded, made_items
from tests.unit.stages.finetune import tiny

FILES = ("items.jsonl", "unigram.items.jsonl", "bigram.items.jsonl", "manifest.json")
Given = dict[str, list[Path]]
KNOWN = {"seed": 0, "per_document": 400, "context_words": 12, "continuation_words": 8}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def encoded_shards(
    folder: Path, shards: list[dict[str, list[str]]], tokenizer: Path, texts: dict[str, str] | None = None
) -> list[Path]:
    """Manifests of tokenize.encode of shards: split → names of `texts`, or of modules."""
    texts = texts or tiny.pages()
    known, out = Tokenizer.from_file(str(tokenizer.with_name("tokenizer.json"))), []
    for number, shard in enumerate(shards):
        corpus = folder / "corpus" / f"{number:05d}.manifest.json"
        files = []
        for split in SPLITS:
            with Writer(corpus.parent / split / f"{number:05d}.parquet", DOCUMENT) as writer:
                for name in shard.get(split, []):
                    writer.add({"id": document_id(name), "text": texts[name], "source": "pydoc", "curated": False})
            files.append(writer.path)
        Manifest("corpus.write", "0" * 16).write(corpus, files)
        out.append(encoded(corpus, folder / "tokens" / corpus.name, known))
    return out


def test_every_task_has_a_headline() -> None:
    assert set(HEADLINES) == {*MAKERS, QUESTIONS}


def test_items(inputs: Given) -> None:
    made = Manifest.read(inputs["tasks"][0])
    found = lines(made.folder / "items.jsonl")
    texts = {
        row["id"]: row["text"]
        for path in inputs["corpus"]
        for row in rows(path.parent / "validation" / f"{path.name[:5]}.parquet")
    }
    assert made.counts["in"] == len(texts) == made.counts["kept"] + sum(made.counts["dropped"].values())
    assert {row["task"] for row in found} == set(MAKERS) and len({row["id"] for row in found}) == len(found)
    for row in found:
        assert row["context"] + row["choices"][row["gold"]] in texts[row["document"]] and row["source"] == "pydoc"
    for task, summary in made.summary["tasks"].items():
        own = [row for row in found if row["task"] == task]
        candidates = summary["candidates"]
        assert len(own) == summary["items"] == candidates["kept"] <= 12
        assert candidates["in"] == candidates["kept"] + sum(candidates["dropped"].values())
        assert summary["documents"] == len({row["document"] for row in own})
        for name in ("unigram", "bigram"):
            results = [row for row in lines(made.folder / f"{name}.items.jsonl") if row["task"] == task]
            assert [row["id"] for row in results] == [row["id"] for row in own]
            right = [result["chosen"] == row["gold"] for result, row in zip(results, own, strict=True)]
            assert summary["baselines"][name]["accuracy"] == pytest.approx(sum(right) / len(right), abs=1e-6)
    bits = made.summary["heldout_text"]["bits_per_byte"]
    assert 0.5 < bits["bigram"] < bits["unigram"] < 8 and 0.5 < bits["zstd"] < 8 and 0.5 < bits["xz"] < 8


def test_tokens_decode_to_the_text(inputs: Given) -> None:
    tokenizer = Tokenizer.from_file(str(inputs["tokenizer"][0].with_name("tokenizer.json")))
    for split in SPLITS:
        texts = {
            row["id"]: row["text"]
            for path in inputs["corpus"]
            for row in rows(path.parent / split / f"{path.name[:5]}.parquet")
        }
        chosen, number = choose_by_hash(inputs["tokens"], split, 10**9, 0, "", lambda document: document.tokens)
        assert number == len(texts) == len(chosen)
        for document, ids in document_tokens(chosen):
            assert text_of(tokenizer, document, ids) == texts[document.id]
            assert texts[document.id].startswith(text_of(tokenizer, document, ids[:7]))


TEXTS = {
    "zh": "春天来了,公园里的花都开了。孩子们在草地上跑来跑去,老人坐在树下聊天。天气很好,大家都很高兴!下午我们去了图书馆,借了三本书。\n",
    "th": "วันนี้อากาศดีมาก เด็กๆ วิ่งเล่นในสวน ผู้ใหญ่นั่งคุยกันใต้ต้นไม้ใหญ่ ตอนบ่ายเราไปห้องสมุดและยืมหนังสือสามเล่ม!\n",
    "ar": "جاء الربيع وتفتحت الأزهار في الحديقة الكبيرة. يلعب الأطفال على العشب الأخضر ويجلس الشيوخ تحت الشجرة. هل الطقس جميل اليوم؟\n",
    "hi": "वसंत आ गया और बगीचे में फूल खिल गए। बच्चे घास पर खेल रहे हैं और बूढ़े लोग पेड़ के नीचे बैठे हैं। दोपहर में हम पुस्तकालय गए।\n",
}


@pytest.mark.parametrize("model", sorted(MODELS))
def test_other_scripts_and_tokenizers(inputs: Given, tmp_path: Path, model: str) -> None:
    """Any text comes back from either tokenizer, and its items are of it; every choice has tokens of its own."""
    names, texts = list(TEXTS), {name: text * 6 + tiny.pages()["wave"][:300] + text for name, text in TEXTS.items()}
    made = MODELS[model](iter([*texts.values()] * 2), untrained_tokenizer(1), 420)
    trained = tmp_path / "tokenizer/manifest.json"
    trained.parent.mkdir()
    made.save(str(trained.with_name("tokenizer.json")))
    Manifest("tokenize.train", "0" * 16).write(trained, [trained.with_name("tokenizer.json")])
    shards = encoded_shards(tmp_path, [{"validation": names, "train": names}], trained, texts)
    out = made_items({"tokens": shards, "tokenizer": [trained]}, tmp_path / "items/manifest.json", per_task=40)
    by_id = {document_id(name): (name, text) for name, text in texts.items()}
    found = lines(out.parent / "items.jsonl")
    for row in found:
        assert row["context"] + row["choices"][row["gold"]] in by_id[row["document"]][1]
    asked = {(row["task"], by_id[row["document"]][0]) for row in found}
    assert {("continuation", name) for name in names} | {("next_word", "zh"), ("next_word", "th")} <= asked
    assert {("word_order", name) for name in ("ar", "hi", "zh")} <= asked


def test_another_tokenizer_is_refused(inputs: Given) -> None:
    tokenizer = Tokenizer.from_file(str(inputs["tokenizer"][0].with_name("tokenizer.json")))
    document, ids = next(document_tokens(choose_by_hash(inputs["tokens"], "train", 1, 0, "", lambda _: 1)[0]))
    with pytest.raises(ManifestError, match=f"document {document.id} decodes to"):
        text_of(tokenizer, document, (ids + 7) % 1024)


VALIDATION, TRAIN = tiny.MODULES[:9], tiny.MODULES[9:12]


@pytest.fixture(scope="module")
def whole(inputs: Given, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Path]]]:
    """The result of the pages as one shard, and what it was made from."""
    folder = tmp_path_factory.mktemp("whole")
    found = {
        **inputs,
        "tokens": encoded_shards(folder, [{"validation": VALIDATION, "train": TRAIN}], inputs["tokenizer"][0]),
    }
    return made_items(found, folder / "items/manifest.json"), found


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(0, 3), min_size=12, max_size=12), order=st.permutations([*VALIDATION, *TRAIN]))
def test_the_same_bytes_whatever_the_shards(
    whole: tuple[Path, Given], tmp_path_factory: pytest.TempPathFactory, places: list[int], order: list[str]
) -> None:
    folder, shards = tmp_path_factory.mktemp("split"), [{split: [] for split in SPLITS} for _ in range(4)]
    for name, place in zip(order, places, strict=True):
        shards[place]["validation" if name in VALIDATION else "train"].append(name)
    found = {**whole[1], "tokens": encoded_shards(folder, shards, whole[1]["tokenizer"][0])}
    path = made_items(found, folder / "items/manifest.json")
    for name in FILES[:3]:
        assert (path.parent / name).read_bytes() == (whole[0].parent / name).read_bytes()
    one, other = Manifest.read(path), Manifest.read(whole[0])
    assert (one.summary, one.counts) == (other.summary, other.counts)


def test_one_more_document_changes_few_items(whole: tuple[Path, Given], tmp_path: Path) -> None:
    shards = [{"validation": [*VALIDATION, "zipfile"], "train": TRAIN}]
    found = {**whole[1], "tokens": encoded_shards(tmp_path, shards, whole[1]["tokenizer"][0])}
    before, after = (
        {row["id"]: row for row in lines(path.parent / "items.jsonl")}
        for path in (whole[0], made_items(found, tmp_path / "items/manifest.json"))
    )
    new = {row["id"] for row in after.values() if row["document"] == document_id("zipfile")}
    kept = before.keys() & after.keys()
    assert 3 <= len(new) <= 9 and len(kept) == len(after) - len(new)
    assert all(before[name] == after[name] for name in kept if not before[name]["others"])


def test_too_few_documents_and_none(inputs: Given, tmp_path: Path) -> None:
    """Fewer items and a note; without a validation document no item and no bits, and no crash."""
    for validation, known in (([], 0), (["wave"], 1)):
        folder = tmp_path / str(known)
        shards = [{"validation": validation, "train": TRAIN}]
        found = {**inputs, "tokens": encoded_shards(folder, shards, inputs["tokenizer"][0])}
        made = Manifest.read(made_items(found, folder / "items/manifest.json", per_task=50))
        assert made.counts["in"] == known
        assert made.summary["notes"][0].startswith("Fewer items than evaluate.items.per_task = 50: word_order ")
        if not known:
            assert (made.folder / "items.jsonl").read_text() == "" and made.summary["heldout_text"] is None
        else:
            assert all(task["baselines"]["bigram"]["stderr"] is None for task in made.summary["tasks"].values())


def test_short_documents_get_choices_of_others(inputs: Given, tmp_path: Path) -> None:
    """Where a document has too few stretches, the item says how many choices are from others."""
    found = Manifest.read(made_items(inputs, tmp_path / "items/manifest.json", continuation_words=200, per_task=100))
    own = [row for row in lines(found.folder / "items.jsonl") if row["task"] == "continuation"]
    assert found.summary["tasks"]["continuation"]["others"] == sum(bool(row["others"]) for row in own) > 0
    assert all(len({choice.casefold() for choice in row["choices"]}) == 4 for row in own)


def test_one_id_is_one_question() -> None:
    """Results of two models are paired by id: a question about the same place with other choices or another context has another one."""
    maker = lambda **changes: Maker(Text("d", "s", tiny.page("shutil")), ItemsSettings(**{**KNOWN, **changes}))  # noqa: E731

    def ids(made: Maker) -> dict[tuple[str, ...], str]:
        """The id of each question, by its words."""
        rows = [made_by.item_row(item, 0) for item in MAKERS["continuation"](made).items]
        return {(row["context"], *row["choices"]): row["id"] for row in rows}

    plain, wider, other = ids(maker()), ids(maker(context_words=40)), ids(maker(continuation_words=7))
    for changed in (wider, other):  # at a page's beginning a wider context is the same
        same = plain.keys() & changed.keys()
        assert len(same) < len(plain) / 4 and set(plain.values()) & set(changed.values()) == {
            plain[words] for words in same
        }
    assert plain == ids(maker())


def test_choices_of_others_are_of_others(inputs: Given) -> None:
    """Not of the item's own document, which may have shown them; none spells a special token, none is wide, as in the document itself."""
    wanted = {"tasks": ["continuation"], "per_task": 40, "per_document": 8, "context_words": 60}
    made = made_by.ItemCollector(ItemsSettings(**{**wanted, "continuation_words": 5, "seed": 0}))
    for name in "abcdefgh":
        made.add_document(Text(name, "s", " ".join(f"{name}{at}" for at in range(30))))
    made.add_document(Text("spells", "s", " ".join(f"i{at}<|endoftext|>" for at in range(40))))
    made.add_document(Text("wide", "s", " ".join("w" * 300 + str(at) for at in range(20))))
    found = made.selected_items("continuation")
    assert sum(item.lacking for item in found) > 20
    for item in found:
        shown = [choice for choice in item.choices[1:] if choice in item.context]
        assert not shown and not any("<|" in choice or "www" in choice for choice in item.choices), item
        assert sum(choice.startswith(item.document) for choice in item.choices) == 4 - item.lacking


def test_the_beginning_of_a_long_document_ends_with_a_whole_word(inputs: Given) -> None:
    tokenizer = Tokenizer.from_file(str(inputs["tokenizer"][0].with_name("tokenizer.json")))
    documents, _ = choose_by_hash(inputs["tokens"], "validation", 3, 0, "x", lambda _: 1)
    for document, ids in document_tokens(documents):
        whole = text_of(tokenizer, document, ids)
        for most in range(40, 140):
            part = text_of(tokenizer, document, ids[:most])
            assert part and whole.startswith(part) and part[-1].isspace()


def test_no_task(inputs: Given, tmp_path: Path) -> None:
    made = Manifest.read(made_items(inputs, tmp_path / "items/manifest.json", tasks=[]))
    assert made.summary["tasks"] == {} and made.summary["notes"] == [] and made.summary["heldout_text"]


@pytest.mark.parametrize("task", sorted(MAKERS))
def test_length_and_place_tell_nothing(task: str) -> None:
    """Always the longest choice (in bytes; the first of equal ones), the shortest or the first: within four standard errors of guessing."""
    known = ItemsSettings(seed=0, per_document=40, context_words=12, continuation_words=8)
    made = (MAKERS[task](Maker(Text(name, "s", text), known)).items for name, text in tiny.pages().items())
    found = [made_by.item_row(item, 0) for items in made for item in items if not item.lacking]
    sizes = [[len(choice.encode()) for choice in item["choices"]] for item in found]
    scorers = {"longest": [of.index(max(of)) for of in sizes], "shortest": [of.index(min(of)) for of in sizes]}
    chance = 1 / len(found[0]["choices"])
    assert len(found) > 500
    for name, chosen in (scorers | {"first": [0] * len(found)}).items():
        right = sum(at == item["gold"] for at, item in zip(chosen, found, strict=True)) / len(found)
        assert abs(right - chance) < 4 * (chance * (1 - chance) / len(found)) ** 0.5, name
