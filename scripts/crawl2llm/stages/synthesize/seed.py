"""Have a model write new texts on the subject of documents, as Cosmopedia does (huggingface.co/blog/cosmopedia).

Of each document the model sees the beginning, and is asked for a text of one of the `formats` for one of the `audiences`, `versions` pairs
of them chosen by hash. A text bears its document's id, address and origin, so that the split keeps it on the side of that document.
Replies are kept on the disk, and none is asked for twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Asked, Seed, chosen, filled
from crawl2llm.stages.synthesize.run import Texts, numbered, program

STEP = "synthesize.seed"
PAIR = " for "  # `textbook for school`: what a text's style is called


def texts(settings: dict[str, Any]) -> Texts:
    """What is asked for of a seed: `versions` pairs of format and audience; nothing of one that is too short."""
    pairs = {
        f"{form}{PAIR}{audience}": {"format": settings["formats"][form], "audience": settings["audiences"][audience]}
        for form in settings["formats"]
        for audience in settings["audiences"]
    }

    def parts(seed: Seed) -> Iterator[tuple[str, str, str]]:
        part = next(passages(seed.text, settings["passage_characters"]), "")
        if len(part) < settings["min_characters"]:
            return
        for name in chosen(list(pairs), settings["versions"], settings["seed"], seed.id):
            yield name, part, filled(settings["prompt"], text=part, **pairs[name])

    def of(seed: Seed) -> Iterator[Asked]:
        return numbered(seed, parts(seed))

    return of


def main(argv: list[str] | None = None) -> int:
    return program(STEP, __doc__, texts, argv)


if __name__ == "__main__":
    raise SystemExit(main())
