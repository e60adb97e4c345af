"""Preferences that a model's own answers make: of several to a prompt, the one that rewards like best, and the one that they like least."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from crawl2llm.core.console import Progress
from crawl2llm.stages.align.endpoint import EndpointJudge
from crawl2llm.stages.align.reward_model import RewardModel
from crawl2llm.stages.align.rewards import ENDPOINT, Rewards
from crawl2llm.stages.align.settings import PairsSettings, RewardEntry
from crawl2llm.training import quantized_weights, sampling, slots
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.end_tokens import answer_text, further_ends
from crawl2llm.training.model_loading import context_of, load_model, model_name, verify_weights
from crawl2llm.training.question_cuts import cut_prompt
from crawl2llm.training.template import Template

AT_ONCE = 64  # answers
SLOT_BATCHES = 16  # of so many answers, those that end give their rows to others
KEY = "align.pairs.rewards"
Row = dict[str, Any]


class Answerer:
    """A model that answers questions, several times each, and what its answers are worth by `rewards`.

    manifest: of the model. endpoint: what judges where an entry of rewards says so.
    """

    def __init__(
        self, manifest: Path, settings: PairsSettings, template: Template, endpoint: EndpointJudge | None
    ) -> None:
        folder = verify_weights(manifest)[1]
        model, self.tokenizer = load_model(folder)
        template = self.template = layout_for(template, self.tokenizer)
        quantized_weights.place_model(model)

        def judge_of(entry: RewardEntry, key: str) -> RewardModel | EndpointJudge:
            if entry.reward == ENDPOINT:
                assert endpoint is not None
                return endpoint
            assert entry.manifest is not None  # see checks.check_answering
            return RewardModel(Path(entry.manifest), False, folder, template, key)

        self.rewards = Rewards(settings.rewards, KEY, judge_of, endpoint=True)
        self.rewards.move_to(model.device)
        self.settings, self.endpoint = settings, endpoint
        self.room = context_of(model.config) - settings.max_new_tokens  # tokens of a prompt
        end = self.tokenizer.eos_token_id
        self.choice = sampling.Choice(end, settings.temperature, further_ends=further_ends(model, end))
        self.drawer = slots.drawer_for(model, self.choice, AT_ONCE)
        at_once = AT_ONCE * (SLOT_BATCHES if isinstance(self.drawer, slots.SlotDrawer) else 1)
        self.prompts_at_once = max(1, at_once // settings.answers)

    def fitting_prompts(
        self, questions: Iterable[tuple[str, Row]], dropped: Counter[str], cut: Counter[str]
    ) -> Iterator[tuple[str, Row, list[int]]]:
        """(split, row, ids of the prompt) of each question that can be asked and judged; see `sample_preferences`."""
        for split, row in questions:
            question = cut_prompt(row["question"], self.template, self.tokenizer, self.room)
            ids = self.tokenizer(self.template.prompt(question))["input_ids"] if question is not None else []
            if not ids:
                dropped["too_long"] += 1
            elif self.endpoint is not None and self.endpoint.needs_reference and not row.get("answer"):
                dropped["no_reference"] += 1
            else:
                if question != row["question"]:
                    cut["prompts"] += 1
                yield split, row, ids

    def scored_answers(self, batch: Sequence[tuple[str, Row, list[int]]]) -> Iterator[list[tuple[float, str]]]:
        """Of each prompt the answers that have a text, each with what it is worth: NaN where a judge gave no score."""
        number = self.settings.answers
        keys = [("pair", row["question"], place) for _, row, _ in batch for place in range(number)]
        draws = sampling.draw_table(self.settings.seed, keys, self.settings.max_new_tokens)
        answers = self.drawer.draw([ids for *_, ids in batch for _ in range(number)], draws)
        texts = [answer_text(self.tokenizer, answer.ids, self.choice.further_ends) for answer in answers]
        judged_of_prompts = [
            [
                (row["question"], text, row.get("answer"))
                for text in texts[place * number : (place + 1) * number]
                if text
            ]
            for place, (_, row, _) in enumerate(batch)
        ]
        # Each different answer once: in another batch of the judge's the same answer has other last digits.
        distinct = list(dict.fromkeys(chain.from_iterable(judged_of_prompts)))
        total = dict(zip(distinct, map(self.rewards.weighted_sum, self.rewards.reward_values(distinct)), strict=True))
        for judged in judged_of_prompts:
            yield [(total[each], each[1]) for each in judged]


def sample_preferences(
    questions: Iterable[tuple[str, Row]],
    manifest: Path,
    settings: PairsSettings,
    template: Template,
    dropped: Counter[str],
    endpoint: EndpointJudge | None,
    cut: Counter[str],
) -> Iterator[tuple[str, Row]]:
    """(split, {question, chosen, rejected, of}) for each prompt whose answers are worth different things.

    manifest: of the model. endpoint: what judges where an entry of rewards says so. The question that is asked
    is cut to leave room for an answer in the model's context. Others are counted in `dropped`: `too_long` if not even a token of it does,
    `no_reference` for an endpoint that is to compare with one, `tied`, `no_score` if fewer than two answers have a score and the endpoint
    gave one none. An answer is a function of the model, the seed, the question and its number.
    cut: `prompts` counts the questions that are cut.
    """
    torch.set_num_threads(settings.threads)
    answerer = Answerer(manifest, settings, template, endpoint)
    progress = Progress(None, "prompts")
    prompts = answerer.fitting_prompts(questions, dropped, cut)
    while batch := list(islice(prompts, answerer.prompts_at_once)):
        for (split, row, _), worth in zip(batch, answerer.scored_answers(batch), strict=True):
            scored = [(score, text) for score, text in worth if not math.isnan(score)]
            progress.add()
            if len(scored) < min(2, len(worth)):
                dropped["no_score"] += 1
                continue
            best, worst = (pick(scored, key=itemgetter(0), default=(0.0, "")) for pick in (max, min))
            if best[0] == worst[0]:
                dropped["tied"] += 1
                continue
            origin = f"sampled from {model_name(manifest)}"
            yield split, {"question": row["question"], "chosen": best[1], "rejected": worst[1], "of": origin}
