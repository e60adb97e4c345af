"""A plan says before the training what llama.cpp could not take after it."""

from __future__ import annotations

from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.commands.plan import exports
from tests.unit.commands.plan.test_estimate import task

EXPORT = {"give": {"from": "base", "step": "compress.export", "types": ["q8_0"]}}


def config(tokenizer: dict[str, Any], model: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return validate({"tokenize": {"train": tokenizer}, "pretrain": {"train": {"model": model or {}}}, **more})


@pytest.mark.parametrize(
    ("tokenizer", "model", "reasons"),
    [
        ({}, {}, ["tokenize.train.digits 3 does; allowed: 0, 1"]),
        ({"digits": 1}, {}, []),
        ({"digits": 0, "model": "unigram"}, {}, ["takes bpe, and it is 'unigram'"]),
        ({"digits": 1, "marks": "letters"}, {}, ["tokenize.train.marks 'letters' does"]),
        ({"digits": 2}, {"type": "mamba"}, ["and it is 'mamba'", "tokenize.train.digits 2 does"]),
    ],
)
def test_what_llama_cpp_could_not_take_is_said(
    tokenizer: dict[str, Any], model: dict[str, Any], reasons: list[str]
) -> None:
    said = list(exports.export_obstacle_lines([task("tokenize.train", "")], {"main": config(tokenizer, model)}))
    assert len(said) == len(reasons)
    for line, reason in zip(said, reasons, strict=True):
        assert line.startswith("no export as GGUF afterwards: ") and reason in line


def test_nothing_is_said_if_nothing_is_trained_or_the_config_is_checked_anyway() -> None:
    main = {"main": config({})}
    assert not list(exports.export_obstacle_lines([task("report.render", "")], main))
    assert not list(exports.export_obstacle_lines([task("tokenize.train", "", variant="other")], main))
    variants = {"main": config({"digits": 1}, models=EXPORT), "other": config({"digits": 3})}
    assert not list(exports.export_obstacle_lines([task("tokenize.train", "")], variants))
    published = validate({"pretrain": {"train": {"enabled": False}}, "models": {"smollm": {"path": "smollm"}}})
    assert not list(exports.export_obstacle_lines([task("tokenize.train", "")], {"main": published})), (
        "its own tokenizer"
    )
    twice = {"main": config({}), "other": config({})}
    both = [task("tokenize.train", ""), task("tokenize.train", "", variant="other")]
    assert len(list(exports.export_obstacle_lines(both, twice))) == 1, "each reason once"
