"""Have a model write new texts on the subject of documents, as Cosmopedia does (huggingface.co/blog/cosmopedia).

Of each document the model sees the beginning, and is asked for a text of one of the `formats` for one of the `audiences`, `versions` pairs
of them chosen by hash. A text bears its document's id, address and origin, so that the split keeps it on the side of that document.
Replies are kept on the disk, and none is asked for twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from crawl2llm.stages.synthesize.passages import passages
from crawl2llm.stages.synthesize.prompts import Seed, TextRequest, choose_by_hash, fill_prompt
from crawl2llm.stages.synthesize.run import RequestMaker, numbered_requests, step_program
from crawl2llm.stages.synthesize.settings import SeedSettings

PAIR = " for "  # `textbook for school`: what a text's style is called


def request_maker(settings: SeedSettings) -> RequestMaker:
    """What is asked for of a seed: `versions` pairs of format and audience; nothing of one that is too short."""
    pairs = {
        f"{form}{PAIR}{audience}": {"format": settings.formats[form], "audience": settings.audiences[audience]}
        for form in settings.formats
        for audience in settings.audiences
    }

    def styled_prompts(seed: Seed) -> Iterator[tuple[str, str, str]]:
        part = next(passages(seed.text, settings.passage_characters), "")
        if len(part) < settings.min_characters:
            return
        for name in choose_by_hash(list(pairs), settings.versions, settings.seed, seed.id):
            yield name, part, fill_prompt(settings.prompt, text=part, **pairs[name])

    def requests_of_seed(seed: Seed) -> Iterator[TextRequest]:
        return numbered_requests(seed, styled_prompts(seed))

    return requests_of_seed


main = step_program("synthesize.seed", __doc__, SeedSettings, request_maker)


if __name__ == "__main__":
    raise SystemExit(main())
