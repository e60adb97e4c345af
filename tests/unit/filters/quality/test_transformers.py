"""quality.transformers: heads of one output and of several, batches by length, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.chain import config
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import transformers
from crawl2llm.filters.quality.settings import ScorerModel, TransformersSettings
from crawl2llm.filters.quality.transformers import Model, label_weights, length_batches
from crawl2llm.formats.documents import rows
from tests.unit import making
from tests.unit.filters.quality.conftest import classifier, sentence

SETTINGS = TransformersSettings()


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("regression"), 1)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("classes"), 2)


@given(st.lists(st.integers(0, 600), max_size=80), st.integers(1, 2000))
def test_every_text_is_in_one_batch_of_like_lengths(lengths: list[int], most: int) -> None:
    batches = list(length_batches(lengths, most))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= most
    flat = [lengths[place] for batch in batches for place in batch]
    assert flat == sorted(flat, reverse=True)


def plain(folder: Path, text: str) -> np.ndarray:
    """The logits of a text as transformers gives them, without any of the step's code."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(text, truncation=True, max_length=32, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        found: np.ndarray = model(input_ids=ids).logits[0].double().numpy()
    return found


TEXTS = [sentence(n % 3 == 0, n, 1 + n % 9) for n in range(30)]


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_a_regression_gives_what_transformers_gives_at_any_batch_size(regression: Path, budget: int) -> None:
    model = Model(ScorerModel(name="edu", path=str(regression)), SETTINGS, "cpu")
    found = model(TEXTS, budget)
    assert found == pytest.approx([plain(regression, text)[0] for text in TEXTS], abs=1e-5)
    good = np.array([n % 3 == 0 for n in range(30)])
    assert found[good].min() > 2 > found[~good].max(), "it was trained to 4 and 0"


def test_a_text_without_a_token_has_no_score(regression: Path) -> None:
    """GPT-2's tokenizer adds no token of its own: an empty text has none."""
    model = Model(ScorerModel(name="edu", path=str(regression)), SETTINGS, "cpu")
    own = model.tokenizer

    class Bare:
        """The tokenizer without what it adds to a text."""

        pad = staticmethod(own.pad)

        def __call__(self, texts: list[str], **more: Any) -> Any:
            return own(texts, add_special_tokens=False, **more)

    model.tokenizer = Bare()
    found = model([TEXTS[0], "", TEXTS[1]], 64)
    assert [transformers.score_or_none(value) is None for value in found] == [False, True, False]


def test_classes_as_a_probability_and_as_an_expected_value(classes: Path) -> None:
    logits = np.array([plain(classes, text) for text in TEXTS])
    share = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    high = Model(ScorerModel(name="edu", path=str(classes), label="high"), SETTINGS, "cpu")(TEXTS, 64)
    assert high == pytest.approx(share, abs=1e-5)
    expected = Model(ScorerModel(name="edu", path=str(classes), values={"low": 1, "high": 5}), SETTINGS, "cpu")(
        TEXTS, 64
    )
    assert expected == pytest.approx(1 + 4 * share, abs=1e-4)


def test_labels_have_to_fit_the_head() -> None:
    names = {0: "low", 1: "high"}
    for entry, outputs, words in (
        ({"label": "high"}, 1, "has one output"),
        ({}, 2, "they are low, high"),
        ({"label": "hgih"}, 2, "no label hgih; the model's are low, high"),
        ({"values": {"low": 1}}, 2, "no number for high"),
    ):
        with pytest.raises(InputError, match=words):
            label_weights(ScorerModel(name="a", path="a", **entry), names, outputs)


def test_a_model_without_a_trained_head_is_refused(regression: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(regression, tmp_path / "model")
    kept = {name: value for name, value in load_file(folder / "model.safetensors").items() if "classifier" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"no weights for classifier\.bias, classifier\.weight"):
        Model(ScorerModel(name="edu", path=str(folder)), SETTINGS, "cpu")


def test_the_digest_of_a_folder_is_compared_before_it_is_read(regression: Path) -> None:
    from crawl2llm.filters.quality import scorers

    entry = {"name": "edu", "path": f"{regression}#sha256={making.folder_digest(regression)}"}
    scorers.check_scorers(config.validate({"quality": {"transformers": {"models": [entry]}}}))
    Model(ScorerModel(**entry), SETTINGS, "cpu")
    with pytest.raises(InputError, match=r"models: edu: .* it is another folder or a damaged one"):
        Model(ScorerModel(name="edu", path=f"{regression}#sha256={'0' * 64}"), SETTINGS, "cpu")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "no .*safetensors"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda folder: (folder / "config.json").write_text(json.dumps({"auto_map": {"a": "b.C"}})), "custom code"),
    ],
)
def test_what_cannot_be_loaded_is_refused_before_a_run(
    regression: Path, tmp_path: Path, damage: Any, words: str
) -> None:
    from crawl2llm.filters.quality import scorers

    folder = shutil.copytree(regression, tmp_path / "model")
    tree = {"quality": {"transformers": {"models": [{"name": "edu", "path": str(folder)}]}}}
    scorers.check_scorers(config.validate(tree))
    damage(folder)
    with pytest.raises(InputError, match=words):
        scorers.check_scorers(config.validate(tree))


def test_a_shard_in_small_windows(
    regression: Path, crawl: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, verdicts = crawl
    found = []
    for number, window in enumerate((2048, 7)):
        monkeypatch.setattr(transformers, "WINDOW", window)
        out = tmp_path / f"{number}/00000.manifest.json"
        given = making.config("quality.transformers", models=[{"name": "edu", "path": str(regression)}])
        argv = [
            "--config",
            given,
            "--documents",
            str(documents[0]),
            "--verdicts",
            str(verdicts),
            "--manifest",
            str(out),
        ]
        assert transformers.main([*argv, "--device=cpu"]) == 0
        found.append(list(rows(Manifest.read(out).file("00000.parquet"))))
    assert [row["id"] for row in found[0]] == [row["id"] for row in found[1]]
    assert [row["edu"] for row in found[0]] == pytest.approx([row["edu"] for row in found[1]], abs=1e-5)
    assert all((row["edu"] > 2) == row["curated"] for row in found[0])
