"""A reward model that judges answers: read once by each process, in fp32, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, task_of
from crawl2llm.stages.align import reward_inputs
from crawl2llm.training import model_loading
from crawl2llm.training.init_checks import check_tokenizer
from crawl2llm.training.question_cuts import cut_or_whole
from crawl2llm.training.template import CHAT, Template

AT_ONCE = 32  # answers that are judged together


class RewardModel:
    """The reward model of the manifest `found`. own: that is an input of this task.

    beside: the folder of the model that it judges. template: of its questions.

    Raises InputError, naming the key, for a manifest of another step, another tokenizer or another template; ManifestError for damage.
    """

    def __init__(self, found: Path, own: bool, beside: Path, template: Template, key: str) -> None:
        Manifest.of(model_registry.REWARD_STEP, found, f"{key}:", own).sound(f"{task_of(found)}/model/")
        folder = model_loading.home(found) / "model"
        check_tokenizer(beside / "tokenizer.json", folder / "tokenizer.json", key)
        if (folder / CHAT).is_file() and (folder / CHAT).read_text(encoding="utf-8") != template.chat():
            raise InputError(
                f"{key}: the reward model in {folder} was trained on questions of another finetune.pairs.template, and scores no others"
            )
        logging.disable_progress_bar()
        self.tokenizer, self.template = model_loading.load_tokenizer(folder), template
        self.model = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=1,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        self.model.eval().requires_grad_(False)
        self.most = model_loading.context_of(self.model.config)

    def place(self, device: Any) -> None:
        """Judge on a device from now on."""
        self.model.to(device)

    def read(self, question: str, answer: str) -> list[int]:
        """The token ids that are scored, as reward_inputs.py has them; cut to the context are the question, then the answer."""
        end = self.template.completion(answer)
        text = self.template.prompt(cut_or_whole(question, self.template, self.tokenizer, self.most, [end])) + end
        ids = self.tokenizer(text)["input_ids"][: self.most] or [self.tokenizer.eos_token_id]
        return reward_inputs.read(np.array(ids, np.int64), self.tokenizer.eos_token_id).tolist()

    @torch.no_grad()
    def scores(self, asked: Sequence[tuple[str, str, str | None]]) -> list[float]:
        """The score of each (question, answer, reference): the reference is not read. Answers of like length are judged together."""
        rows = [self.read(question, answer) for question, answer, _ in asked]
        found = [0.0] * len(rows)
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        for start in range(0, len(order), AT_ONCE):
            some = order[start : start + AT_ONCE]
            width = max(len(rows[number]) for number in some)
            end = self.tokenizer.eos_token_id
            ids = torch.tensor([rows[number] + [end] * (width - len(rows[number])) for number in some])
            for number, score in zip(
                some, self.model(input_ids=ids.to(self.model.device)).logits[:, 0].tolist(), strict=True
            ):
                found[number] = float(score)
        return found
