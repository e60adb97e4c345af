"""Preferences that a model's own answers make: of several to a prompt, the one that rewards like best, and the one that they like least."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crawl2llm.core.console import Progress
from crawl2llm.stages.align.endpoint import EndpointJudge
from crawl2llm.stages.align.reward_model import RewardModel
from crawl2llm.stages.align.rewards import ENDPOINT, Rewards
from crawl2llm.training import quantized_weights, sampling
from crawl2llm.training.model_loading import context_of, load, name, weights
from crawl2llm.training.question_cuts import cut_prompt
from crawl2llm.training.template import Template

AT_ONCE = 64  # answers
KEY = "align.pairs.rewards"
Row = dict[str, Any]


def preferences(
    asked: Iterable[tuple[str, Row]],
    manifest: Path,
    settings: Row,
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
    torch.set_num_threads(settings["threads"])
    folder = weights(manifest)[1]
    model, tokenizer = load(folder)
    quantized_weights.place(model)

    def judge(entry: Row, key: str) -> RewardModel | EndpointJudge:
        if entry["reward"] == ENDPOINT:
            assert endpoint is not None
            return endpoint
        return RewardModel(Path(entry["manifest"]), False, folder, template, key)

    rewards = Rewards(settings["rewards"], KEY, judge, endpoint=True)
    rewards.place(model.device)
    many, most = settings["answers"], settings["max_new_tokens"]
    context = context_of(model.config)
    following = partial(sampling.step, model)

    def fitting() -> Iterator[tuple[str, Row, list[int]]]:
        for split, row in asked:
            question = cut_prompt(row["question"], template, tokenizer, context - most)
            ids = tokenizer(template.prompt(question))["input_ids"] if question is not None else []
            if not ids:
                dropped["too_long"] += 1
            elif endpoint is not None and endpoint.compares and not row.get("answer"):
                dropped["no_reference"] += 1
            else:
                if question != row["question"]:
                    cut["prompts"] += 1
                yield split, row, ids

    progress = Progress(None, "prompts")
    given = fitting()
    while some := list(islice(given, max(1, AT_ONCE // many))):
        keys = [("pair", row["question"], number) for _, row, _ in some for number in range(many)]
        draws = np.array([sampling.uniforms(settings["seed"], key, most) for key in keys])
        prompts = [ids for *_, ids in some for _ in range(many)]
        at = torch.from_numpy(draws).to(model.device)
        drawn = sampling.answers(
            following, prompts, at, settings["temperature"], tokenizer.eos_token_id, lambda going: bool(going.any())
        )
        texts = [str(tokenizer.decode(ids, skip_special_tokens=True)).strip() for ids in drawn]
        own = [[text for text in texts[place * many : (place + 1) * many] if text] for place in range(len(some))]
        # Each different answer once: in another batch of the judge's the same answer has other last digits.
        every = list(
            dict.fromkeys(
                (row["question"], text, row.get("answer"))
                for (_, row, _), found in zip(some, own, strict=True)
                for text in found
            )
        )
        total = dict(zip(every, map(rewards.total, rewards.every(every)), strict=True))
        for (split, row, _), found in zip(some, own, strict=True):
            worth = [(total[row["question"], text, row.get("answer")], text) for text in found]
            scored = [one for one in worth if not math.isnan(one[0])]
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
                    "of": f"sampled from {name(manifest)}",
                },
            )
