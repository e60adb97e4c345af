"""How a question and its answer are laid out as text, the same in fine-tuning and in evaluation.

The template is a key of `finetune.pairs`, which hands it on in its manifest's summary: whoever reads the pairs asks
them the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.workflow.errors import InputError
from scripts.workflow.manifest import Manifest


@dataclass(frozen=True)
class Template:
    """`text` is cut before the white space that leads to `{answer}`: byte-level BPE joins a space to the word after it."""

    text: str
    before: str  # up to that white space, with {question} in it
    delimiter: str  # the white space

    @classmethod
    def parse(cls, text: str) -> Template:
        """Cut a template such as `Question: {question}\\nAnswer: {answer}`; InputError says what it lacks."""
        head, sign, tail = text.partition("{answer}")
        if not sign or tail or head.count("{question}") != 1:
            raise InputError(
                f"finetune.pairs.template is {text!r}; it must hold {{question}} once and end with {{answer}}"
            )
        before = head.rstrip()
        return cls(text, before, head[len(before) :])

    def prompt(self, question: str) -> str:
        """What the model is given; ends without white space."""
        return self.before.replace("{question}", question)

    def completion(self, answer: str) -> str:
        """What the model should continue with."""
        return self.delimiter + answer


def enough(manifest: Path, name: str) -> bool:
    """Whether finetune.pairs found enough pairs (`train` or `heldout`) to work with. Raises InputError as `read_pairs`."""
    return bool(_read(manifest).summary["enough"][name])


def _read(manifest: Path) -> Manifest:
    read = Manifest.read(manifest)
    if read.step != "finetune.pairs":
        raise InputError(f"--pairs {manifest} is a manifest of {read.step!r}; it must be one of 'finetune.pairs'")
    return read


def read_pairs(manifest: Path, name: str) -> tuple[list[dict[str, Any]], Template]:
    """The rows of `<name>.jsonl` of a finetune.pairs manifest, and the template to ask them with.

    Raises InputError for a manifest of another step, ManifestError for a damaged one.
    """
    read = _read(manifest)
    with read.sound(f"{name}.jsonl").file(f"{name}.jsonl").open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle], Template.parse(read.summary["template"])
