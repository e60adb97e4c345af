"""KenLM's programs, which quality.lm trains with and quality.kenlm asks: where they are, and how they are called."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.core.shard_pool import end_with_parent
from crawl2llm.filters.quality import scorers

VERSION = "0.3.0"  # of kenlm's archive; in envs/lock-kenlm.txt
PROGRAMS = ("lmplz", "build_binary", "query")
VERSION_FILE = "version"  # the file in the folder that says which version it is of
ERROR_LINES = 4  # of what a program said last
# A program that takes longer hangs: each reads and writes megabytes a second, and the machine may have much other work.
SECONDS = 600  # of the clock
BYTES_PER_SECOND = 20_000  # of its files: each so many add a second

KENLM = ExternalTool(
    key="kenlm",
    name="KenLM's programs",
    plural=True,
    cost="two minutes",
    files=(VERSION_FILE,),
    programs=PROGRAMS,
    version=VERSION,
)


def check_tools(config: dict[str, Any]) -> None:
    """Raise InputError if a run trains or asks language models and the programs are not there."""
    if "quality" in config["filters"] and scorers.scorer_names(config, "kenlm") and (reason := KENLM.problem()):
        is_trained = config["quality"]["lm"]["enabled"]
        key = "quality.lm.enabled is true" if is_trained else "quality.kenlm.models names models"
        raise InputError(f"{key}, and {reason}")


def run_program(program: str, *options: str, text: Path, out: Path | None = None, model: Path | None = None) -> None:
    """Run a program with the file `text` as its input, and what it prints in the file `out`. model: a file that it reads.

    Raises InputError with its last words if it fails, and if it takes longer than files of this size can take.
    """
    if reason := KENLM.problem():
        raise InputError(reason)
    seconds = SECONDS + sum(file.stat().st_size for file in (text, model) if file) // BYTES_PER_SECOND
    with text.open("rb") as text_file, (out or Path(os.devnull)).open("wb") as out_file:
        try:
            result = subprocess.run(
                [str(KENLM.folder() / program), *options],
                stdin=text_file,
                stdout=out_file,
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
                preexec_fn=partial(end_with_parent, os.getpid()),
            )
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"KenLM's {program} did not come to an end in {seconds:,} seconds with {model or text}, and was ended: files of this size "
                "take far less. Run again; if it hangs again, the file is damaged, or its disk does not answer"
            ) from error
    if result.returncode:
        last_lines = [line for line in result.stderr.decode(errors="replace").splitlines() if line.strip()][
            -ERROR_LINES:
        ]
        raise InputError(
            f"KenLM's {program} ended with status {result.returncode}: {' | '.join(last_lines) or 'no word'}"
        )


def train_model(text: Path, model: Path, order: int, prune: list[int], memory_mb: int) -> None:
    """Train a model of `order`-grams, with modified Kneser-Ney smoothing (Heafield et al. 2013), on a file of one sentence a line.

    prune: for each order from 1 on the count up to which its n-grams are left out. memory_mb: of lmplz's sort. Small texts
    lack n-grams of some counts: lmplz's own discounts stand in for those that cannot be estimated.
    """
    arpa = model.with_suffix(".arpa")
    options = [
        "-o",
        str(order),
        "-S",
        f"{memory_mb}M",
        "-T",
        str(model.parent / "sort"),
        "--discount_fallback",
        "--skip_symbols",
    ]
    run_program("lmplz", *options, *(["--prune", *map(str, prune)] if prune else []), text=text, out=arpa)
    run_program("build_binary", "trie", str(arpa), str(model), text=Path(os.devnull), model=arpa)
    arpa.unlink()


def line_log_probabilities(model: Path, text: Path, out: Path) -> Iterator[float]:
    """The log10 probability of each line of the file `text`, its end included, with 6 digits. out: a file for the answers."""
    run_program("query", "-v", "sentence", str(model), text=text, out=out, model=model)
    with out.open(encoding="utf-8") as answers:
        for line in answers:
            yield float(line.split()[1])  # Total: -12.34 OOV: 0
