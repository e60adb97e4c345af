"""Have a model write passages of documents in other words, as Rephrase the Web does (WRAP, arXiv:2401.16380).

A document is cut into passages, and each is asked for in `versions` of the `styles`, chosen by hash. A text is made from one passage and
bears its document's id, address and origin, so that the split keeps it on the side of that document. Replies are kept on the disk, and
none is asked for twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Asked, Seed, chosen, filled
from crawl2llm.stages.synthesize.run import Texts, numbered, program

STEP = "synthesize.rephrase"


def texts(settings: dict[str, Any]) -> Texts:
    """What is asked for of a seed: of each passage of `min_characters` or more, `versions` styles."""

    def parts(seed: Seed) -> Iterator[tuple[str, str, str]]:
        names = list(settings["styles"])
        for at, part in enumerate(passages(seed.text, settings["passage_characters"])):
            if len(part) < settings["min_characters"]:
                continue
            for name in chosen(names, settings["versions"], settings["seed"], f"{seed.id}/{at}"):
                yield name, part, filled(settings["styles"][name], text=part)

    def of(seed: Seed) -> Iterator[Asked]:
        return numbered(seed, parts(seed))

    return of


def main(argv: list[str] | None = None) -> int:
    return program(STEP, __doc__, texts, argv)


if __name__ == "__main__":
    raise SystemExit(main())
