"""In which keys fine-tuned models differ, and which of them the page's head speaks of."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.chain import config as configuration
from crawl2llm.chain import model_registry
from crawl2llm.stages.report import differences, tables
from crawl2llm.stages.report.models import Model

SFT: dict[str, Any] = {"from": "base", "step": "finetune.train"}


def tables_of_models(models: dict[str, Any]) -> list[dict[str, Any]]:
    config = configuration.validate({"models": models})
    return differences.difference_tables(
        config, [Model(m["name"], m["from"], m["step"]) for m in model_registry.model_rows(config)]
    )


def test_keys_that_differ_with_their_values() -> None:
    """Those of the section too, where one model alone sets them; placement keys decide no byte."""
    models = {
        "sft": SFT,
        "hot": {**SFT, "learning_rate": 0.5, "processes": 2},
        "more": {**SFT, "from": "hot", "epochs": 9},
    }
    (table,) = tables_of_models(models)
    section = configuration.validate({})["finetune"]["train"]
    rate, epochs = str(section["learning_rate"]), str(section["epochs"])
    assert (table["step"], table["models"]) == ("finetune.train", ["sft", "hot", "more"])
    assert dict(table["rows"]) == {
        "from": ["base", "base", "hot"],
        "learning_rate": [rate, "0.5", rate],
        "epochs": [epochs, epochs, "9"],
    }


def test_one_model_differs_from_none() -> None:
    assert tables_of_models({"sft": SFT}) == [] and tables_of_models({}) == []
    assert tables_of_models({"sft": SFT, "same": {**SFT, "processes": 2}})[0]["rows"] == []
    assert differences.difference_tables(None, [Model("sft", "base", "finetune.train")]) == []


@pytest.mark.parametrize(
    ("losses", "name", "words"),
    [
        (
            ((2.0, 7), (1.0, 8), (3.0, 7)),
            "c",
            "the last of 3 fine-tuned models, which have no loss over the same held-out pairs",
        ),
        (((2.0, 7), (1.0, 7), (3.0, 7)), "b", "the lowest held-out loss of 3 fine-tuned models"),
        ((2.0, 1.0, 3.0), "b", "the lowest held-out loss of 3 fine-tuned models"),
        ((2.0, 1.0, None), "b", "the lowest held-out loss of 2 fine-tuned models"),
        ((None, None, None), "c", "the last of 3 fine-tuned models"),
        ((2.0,), "a", ""),
    ],
    ids=["other-pairs", "same-pairs", "best", "one-unknown", "unknown", "one"],
)
def test_the_tile_is_of_the_best_by_held_out_loss(
    losses: tuple[float | tuple[float, int] | None, ...], name: str, words: str
) -> None:
    """A loss beside the number of held-out pairs that it is over, or alone."""
    tuned = [
        {
            "name": one,
            "from": "base",
            "training": (
                {"heldout_loss_after": loss[0], "heldout_pairs": loss[1]}
                if isinstance(loss, tuple)
                else {"heldout_loss_after": loss}
            ),
            "evaluation": {"questions": {"acc": 0.25}},
        }
        for one, loss in zip("abc", losses, strict=False)
    ]
    base = {"name": "base", "from": None, "step": "pretrain.train", "training": {}, "evaluation": {}}
    counts = {"models": [base, *tuned], "documents_read": 1, "bytes_read": 1}
    (tile,) = [tile for tile in tables.overview_tiles(counts, None) if tile["name"].startswith("Accuracy")]
    assert tile["name"] == f"Accuracy, {name}"
    assert words in tile["note"] and (bool(words) or "fine-tuned models" not in tile["note"])
