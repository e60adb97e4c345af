"""What a plan can say of `auto` before the corpus is there: which keys, and a bound by the bytes of the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.common.config import is_auto
from scripts.pretrain import auto
from scripts.tokenize.vocabulary import entries

__tracked__ = False  # what a plan prints decides nothing

MARK = "auto: "
STEPS = ("tokenize.train", "pretrain.train")
COMPRESSED = (".gz", ".zst", ".zstd", ".lz4", ".tgz")
# Most tokens of text a byte of a file. 2.7 bytes are a token under the smallest vocabulary, and text is compressed 4
# times at most; web pages, three quarters markup and more, stay far below.
TOKENS_A_BYTE = 1 / 2.7
RATIO = 4


def line(config: dict[str, Any], names: list[str]) -> str:
    """One line for people on what is `auto` in a config that reads the files `names`; empty where nothing is."""
    keys = [key.rsplit(".", 1)[1] for step in STEPS for key in is_auto(config, step)]
    train = config["pretrain"]["train"]
    if train["steps"] is not None or train["tokens"] is not None:
        keys = [key for key in keys if key != "epochs"]
    if not keys:
        return ""
    files = [Path(name) for name in names]
    shown = ", ".join(keys) if len(keys) < 6 else f"{len(keys)} keys of {' and '.join(STEPS)}"
    known = f"{MARK}{shown}: known after tokenize, by the corpus"
    size = sum(path.stat().st_size * (RATIO if path.suffix in COMPRESSED else 1) for path in files)
    if not size or any(source["kind"] == "crawl" for source in config["ingest"]["extract"]["sources"]):
        return known
    tokens = max(300, round(size * TOKENS_A_BYTE))
    vocabulary = entries(config["tokenize"]["train"]["vocabulary"], size)
    made = auto.resolve(train, tokens, vocabulary)
    parameters = auto.parameters(made["model"], vocabulary)[0]
    return (
        f"{known}; at most {tokens / 1e6:,.1f} M training tokens and {parameters / 1e6:,.1f} M parameters for input of "
        f"{sum(path.stat().st_size for path in files) / 1e6:,.1f} MB"
    )
