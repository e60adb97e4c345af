"""Small real scorers: a fastText file, a classifier of transformers that was trained for some steps, and documents to score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.filters.quality import tools
from crawl2llm.filters.quality.classifier import NEGATIVE, POSITIVE, Classifier
from crawl2llm.filters.quality.settings import TrainSettings
from tests.unit import making

GOOD = ("the proof", "of the lemma", "follows from", "the theorem", "by induction", "on the degree")
BAD = ("buy now", "the discount", "click here", "free offer", "best price", "sign up")
needs_kenlm = pytest.mark.skipif(tools.KENLM.problem() is not None, reason=str(tools.KENLM.problem()))


def sentence(good: bool, number: int, words: int = 6) -> str:
    """A text of one of the two kinds; another for every number."""
    parts = GOOD if good else BAD
    return " ".join(parts[(number * 7 + place * (1 + number % 5)) % len(parts)] for place in range(words))


def pages(shards: int = 2, number: int = 60) -> dict[str, list[dict[str, Any]]]:
    """Documents by shard, every third of them curated, and of a host for every two."""
    return {
        f"{shard:05d}": [
            making.document(
                f"{shard}-{place:03d}",
                sentence(place % 3 == 0, place + shard) + f"\n{sentence(place % 3 == 0, place + 1, 3)}",
                curated=place % 3 == 0,
                url=f"https://h{place // 2}.org/{shard}",
                source="good" if place % 3 == 0 else "web",
            )
            for place in range(number)
        ]
        for shard in range(shards)
    }


@pytest.fixture
def crawl(tmp_path: Path) -> tuple[list[Path], Path]:
    """(manifests of two shards of documents, manifest of verdicts that keep all)."""
    made = [making.documents(tmp_path / "documents", rows, shard) for shard, rows in pages().items()]
    ids = {shard: [row["id"] for row in rows] for shard, rows in pages().items()}
    return made, making.verdicts(tmp_path / "dedup", ids)


SETTINGS = TrainSettings(learning_rate=0.5, dimensions=8, epochs=20, buckets=500)


@pytest.fixture(scope="session")
def fasttext_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fastText classifier of the two kinds."""
    folder = tmp_path_factory.mktemp("fasttext")
    lines = [f"{(POSITIVE, NEGATIVE)[n % 2]} {sentence(n % 2 == 0, n)}\n" for n in range(200)]
    (folder / "examples.txt").write_text("".join(lines))
    Classifier.train(folder / "examples.txt", SETTINGS).save(folder / "model.bin")
    return folder / "model.bin"


def classifier(folder: Path, outputs: int) -> Path:
    """A BERT of 16 dimensions, trained until it tells the two kinds: a regression to 4 and 0, or classes low and high."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = sorted({word for part in (*GOOD, *BAD) for word in part.split()})
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a token of the vocabulary
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **marks)
    names = {0: "low", 1: "high"} if outputs == 2 else {0: "LABEL_0"}
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, num_labels=outputs, id2label=names, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip
    texts = [sentence(n % 2 == 0, n) for n in range(64)]
    given = fast(texts, padding=True, return_tensors="pt")
    given.pop("token_type_ids", None)
    good = torch.tensor([n % 2 == 0 for n in range(64)])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(40):
        labels = good.long() if outputs == 2 else good.float() * 4
        loss = model(**given, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
