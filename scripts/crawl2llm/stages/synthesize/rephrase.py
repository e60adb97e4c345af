"""Have a model write passages of documents in other words, as Rephrase the Web does (WRAP, arXiv:2401.16380).

A document is cut into passages, and each is asked for in `versions` of the `styles`, chosen by hash. A text is made from one passage and
bears its document's id, address and origin, so that the split keeps it on the side of that document. Replies are kept on the disk, and
none is asked for twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Seed, TextRequest, choose_by_hash, fill_prompt
from crawl2llm.stages.synthesize.run import RequestMaker, numbered_requests, step_program
from crawl2llm.stages.synthesize.settings import RephraseSettings


def request_maker(settings: RephraseSettings) -> RequestMaker:
    """What is asked for of a seed: of each passage of `min_characters` or more, `versions` styles."""

    def styled_prompts(seed: Seed) -> Iterator[tuple[str, str, str]]:
        names = list(settings.styles)
        for at, part in enumerate(passages(seed.text, settings.passage_characters)):
            if len(part) < settings.min_characters:
                continue
            for name in choose_by_hash(names, settings.versions, settings.seed, f"{seed.id}/{at}"):
                yield name, part, fill_prompt(settings.styles[name], text=part)

    def requests_of_seed(seed: Seed) -> Iterator[TextRequest]:
        return numbered_requests(seed, styled_prompts(seed))

    return requests_of_seed


main = step_program("synthesize.rephrase", __doc__, RephraseSettings, request_maker)


if __name__ == "__main__":
    raise SystemExit(main())
