"""A model behind an OpenAI-compatible endpoint that judges answers, as `align.pairs.judge` says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from crawl2llm.core.console import Progress, log
from crawl2llm.core.endpoint import Endpoint
from crawl2llm.core.errors import InputError
from crawl2llm.core.judging import parse_score, scale_ends, score_request
from crawl2llm.stages.align.settings import PairsJudge

KEY = "align.pairs.judge"
REFERENCE = "{reference}"


def check_judge(settings: PairsJudge, key: str) -> None:
    """InputError for a judge that cannot be asked. settings: those of KEY. key: of the entry of rewards that asks it."""
    if settings.model is None:
        raise InputError(f"{key}.reward is 'endpoint', and {KEY}.model is null: name the model that judges")
    scale_ends(settings.scale, KEY)


class EndpointJudge:
    """A judge by the settings of align.pairs.judge. key: of the entry of rewards that asks it.

    Raises InputError for settings, an endpoint or a key that cannot be used.
    """

    def __init__(self, settings: PairsJudge, key: str) -> None:
        check_judge(settings, key)
        self.settings, self.scale = settings, scale_ends(settings.scale, KEY)
        self.endpoint = Endpoint.of(settings, KEY)
        self.needs_reference = REFERENCE in settings.prompt  # asks for an answer to compare with
        self.progress = Progress(None, "answers judged")
        self.answers = self.unscored = 0

    def move_to(self, device: Any) -> None:
        """Nothing: it judges elsewhere."""

    def scores(self, answers: Sequence[tuple[str, str, str | None]]) -> list[float]:
        """The score of each (question, answer, reference), not a number where its reply holds none; what is the same is asked once.

        Raises InputError if the endpoint gives no answer: replies that came are kept, and not asked for again.
        """
        distinct = list(dict.fromkeys(answers))
        bodies = [
            score_request(
                self.settings.model,
                self.settings.prompt,
                self.settings.max_tokens,
                question,
                answer,
                reference or "",
            )
            for question, answer, reference in distinct
        ]
        values = [parse_score(reply, *self.scale) for reply in self.endpoint.answers(bodies, self.progress)]
        score_by_answer = dict(zip(distinct, (math.nan if each is None else each for each in values), strict=True))
        worth = [score_by_answer[answer] for answer in answers]
        self.answers += len(worth)
        self.unscored += sum(map(math.isnan, worth))
        return worth

    def manifest_facts(self) -> dict[str, Any]:
        """What the manifest says of it: its model, the answers that it was asked of, and those without a score."""
        low, high = self.scale
        if self.unscored:
            log.warning("%s of %s replies have no number from %g to %g", self.unscored, self.answers, low, high)
        return {"model": self.settings.model, "answers": self.answers, "no_score": self.unscored}
