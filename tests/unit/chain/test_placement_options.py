"""Placement keys as words of a command line, and back: what a rule writes is what the program reads."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from crawl2llm.chain import command_line, config, config_schema, placement_options

STEPS = sorted(
    {
        ".".join(path.split(".")[:2])
        for path, node in config_schema.schema_leaves()
        if node.get("placement") and "." in path and not path.startswith("sweep.")
    }
)


def read(step: str, words: list[str], whose: bool | str = placement_options.PROGRAM) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    command_line.add_placement_options(parser, step, whose)
    return vars(parser.parse_args(words))


@pytest.mark.parametrize("whose", [placement_options.PROGRAM, placement_options.LAUNCHER])
@pytest.mark.parametrize("step", STEPS)
def test_every_default_comes_back(step: str, whose: bool | str) -> None:
    section = config.lookup(config.validate({}), step)
    found = read(step, placement_options.option_words(step, section, whose), whose)
    assert found == {
        placement_options.attribute_name(key): config.lookup(section, key)
        for key in placement_options.placement_keys(step, whose)
    }


def test_null_and_numbers_of_a_key_that_takes_both() -> None:
    section = config.validate({"pretrain": {"plan": {"gpu": "h100", "gpu_memory": 64, "mfu": 0.5}}})["pretrain"]["plan"]
    words = placement_options.option_words("pretrain.plan", section)
    assert {"--gpu=h100", "--gpu-memory=64", "--gpu-hour-price=null"} <= set(words)
    found = read("pretrain.plan", words)
    assert (found["gpu"], found["gpu_memory"], found["mfu"], found["gpu_hour_price"]) == ("h100", 64.0, 0.5, None)


def test_what_is_no_number_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("pretrain.plan", ["--mfu=much"])
    assert "argument --mfu: invalid number value: 'much'" in capsys.readouterr().err
