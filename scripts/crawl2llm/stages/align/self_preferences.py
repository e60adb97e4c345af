"""Preferences that a model's own answers make: of several to a prompt, the one that rewards like best, and the one that they like least."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
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
from crawl2llm.training.end_tokens import further_ends, without_further_end
from crawl2llm.training.model_loading import context_of, load_model, model_name, verify_weights
from crawl2llm.training.question_cuts import cut_prompt
from crawl2llm.training.template import Template

AT_ONCE = 64  # answers
SLOT_BATCHES = 16  # of so many answers, those that end give their rows to others
KEY = "align.pairs.rewards"
Row = dict[str, Any]


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
    folder = verify_weights(manifest)[1]
    model, tokenizer = load_model(folder)
    template = layout_for(template, tokenizer)
    quantized_weights.place_model(model)

    def judge_of(entry: RewardEntry, key: str) -> RewardModel | EndpointJudge:
        if entry.reward == ENDPOINT:
            assert endpoint is not None
            return endpoint
        assert entry.manifest is not None  # see checks.check_answering
        return RewardModel(Path(entry.manifest), False, folder, template, key)

    rewards = Rewards(settings.rewards, KEY, judge_of, endpoint=True)
    rewards.move_to(model.device)
    answer_count, max_tokens = settings.answers, settings.max_new_tokens
    context = context_of(model.config)
    end = tokenizer.eos_token_id
    choice = sampling.Choice(end, settings.temperature, further_ends=further_ends(model, end))
    drawer = slots.drawer_for(model, choice, AT_ONCE)
    at_once = AT_ONCE * (SLOT_BATCHES if isinstance(drawer, slots.SlotDrawer) else 1)

    def fitting_prompts() -> Iterator[tuple[str, Row, list[int]]]:
        for split, row in questions:
            question = cut_prompt(row["question"], template, tokenizer, context - max_tokens)
            ids = tokenizer(template.prompt(question))["input_ids"] if question is not None else []
            if not ids:
                dropped["too_long"] += 1
            elif endpoint is not None and endpoint.needs_reference and not row.get("answer"):
                dropped["no_reference"] += 1
            else:
                if question != row["question"]:
                    cut["prompts"] += 1
                yield split, row, ids

    progress = Progress(None, "prompts")
    remaining = fitting_prompts()
    while batch := list(islice(remaining, max(1, at_once // answer_count))):
        keys = [("pair", row["question"], number) for _, row, _ in batch for number in range(answer_count)]
        draws = sampling.draw_table(settings.seed, keys, max_tokens)
        answers = drawer.draw([ids for *_, ids in batch for _ in range(answer_count)], draws)
        texts = [
            str(
                tokenizer.decode(without_further_end(answer.ids, choice.further_ends), skip_special_tokens=True)
            ).strip()
            for answer in answers
        ]
        texts_by_prompt = [
            [text for text in texts[place * answer_count : (place + 1) * answer_count] if text]
            for place in range(len(batch))
        ]
        # Each different answer once: in another batch of the judge's the same answer has other last digits.
        distinct = list(
            dict.fromkeys(
                (row["question"], text, row.get("answer"))
                for (_, row, _), answer_texts in zip(batch, texts_by_prompt, strict=True)
                for text in answer_texts
            )
        )
        total = dict(zip(distinct, map(rewards.weighted_sum, rewards.reward_values(distinct)), strict=True))
        for (split, row, _), answer_texts in zip(batch, texts_by_prompt, strict=True):
            worth = [(total[row["question"], text, row.get("answer")], text) for text in answer_texts]
            scored = [(score, text) for score, text in worth if not math.isnan(score)]
            progress.add()
            if len(scored) < min(2, len(worth)):
                dropped["no_score"] += 1
                continue
            best, worst = (pick(scored, key=itemgetter(0), default=(0.0, "")) for pick in (max, min))
            if best[0] == worst[0]:
                dropped["tied"] += 1
                continue
            yield (
                split,
                {
                    "question": row["question"],
                    "chosen": best[1],
                    "rejected": worst[1],
                    "of": f"sampled from {model_name(manifest)}",
                },
            )
