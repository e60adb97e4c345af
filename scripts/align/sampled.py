"""Preferences that a model's own answers make: of several to a prompt, the one that rewards like best, and the one that they like least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scripts.align import sampling
from scripts.align.reward_model import RewardModel
from scripts.align.rewards import Rewards
from scripts.finetune.template import Template
from scripts.models import quantized
from scripts.models.load import context_of, load, name, weights
from scripts.workflow.console import Progress

AT_ONCE = 64  # answers
KEY = "align.pairs.rewards"
Row = dict[str, Any]


def preferences(
    asked: Iterable[tuple[str, Row]], manifest: Path, settings: Row, template: Template, dropped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """(split, {question, chosen, rejected, of}) for each prompt whose answers are worth different things.

    manifest: of the model. Others are counted in `dropped`: `too_long` for an answer within the model's context, `tied`. An answer is a
    function of the model, the seed, the question and its number.
    """
    torch.set_num_threads(settings["threads"])
    folder = weights(manifest)[1]
    model, tokenizer = load(folder)
    quantized.place(model)
    rewards = Rewards(
        settings["rewards"], KEY, lambda entry, key: RewardModel(Path(entry["manifest"]), False, folder, template, key)
    )
    rewards.place(model.device)
    many, most = settings["answers"], settings["max_new_tokens"]
    context = context_of(model.config)
    following = partial(sampling.step, model)

    def fitting() -> Iterator[tuple[str, Row, list[int]]]:
        for split, row in asked:
            ids = tokenizer(template.prompt(row["question"]))["input_ids"]
            if 0 < len(ids) <= context - most:
                yield split, row, ids
            else:
                dropped["too_long"] += 1

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
        for place, (split, row, _) in enumerate(some):
            own = [text for text in texts[place * many : (place + 1) * many] if text]
            worth = list(
                map(rewards.total, rewards.every([(row["question"], text, row.get("answer")) for text in own]))
            )
            progress.add()
            if not own or max(worth) == min(worth):
                dropped["tied"] += 1
                continue
            best, worst = own[worth.index(max(worth))], own[worth.index(min(worth))]
            yield (
                split,
                {
                    "question": row["question"],
                    "chosen": best,
                    "rejected": worst,
                    "of": f"sampled from {name(manifest)}",
                },
            )
