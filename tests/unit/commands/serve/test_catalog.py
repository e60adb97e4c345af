"""What can be talked to: of a model that the config no longer has the error says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.commands.serve import catalog
from crawl2llm.core.errors import InputError


def test_a_model_that_is_set_aside_is_named(tmp_path: Path) -> None:
    base = tmp_path / "results/main/pretrain/train/manifest.json"
    aside = tmp_path / f"results/main/unused/finetune/train/sft.{'0' * 16}"
    for path in (base.parent, aside):
        path.mkdir(parents=True)
    with pytest.raises(InputError, match=rf"there is no model 'sft'; there are base. .* results are in {aside}, and"):
        catalog.choose_first({"base": base}, {}, "sft", None)
    with pytest.raises(InputError, match=r"there is no model 'x'; there are base$"):
        catalog.choose_first({"base": base}, {}, "x", None)


def test_examples_of_a_run_that_asked_nothing_are_ours(tmp_path: Path) -> None:
    assert catalog.example_texts(tmp_path, True) == list(catalog.QUESTIONS)
    assert catalog.example_texts(tmp_path, False) == list(catalog.BEGINNINGS)
