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
from crawl2llm.training.question_cuts import cut_if_possible
from crawl2llm.training.template import CHAT, Template

AT_ONCE = 32  # answers that are judged together


class RewardModel:
    """The reward model of the manifest `manifest`. is_input: that is an input of this task.

    judged_folder: the folder of the model that it judges. template: of its questions.

    Raises InputError, naming the key, for a manifest of another step, another tokenizer or another template; ManifestError for damage.
    """

    def __init__(self, manifest: Path, is_input: bool, judged_folder: Path, template: Template, key: str) -> None:
        Manifest.read_of_step(model_registry.REWARD_STEP, manifest, f"{key}:", is_input).verify_files(
            f"{task_of(manifest)}/model/"
        )
        folder = model_loading.model_folder(manifest) / "model"
        check_tokenizer(judged_folder / "tokenizer.json", folder / "tokenizer.json", key)
        if (folder / CHAT).is_file() and (folder / CHAT).read_text(encoding="utf-8") != template.chat_template():
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
        self.context = model_loading.context_of(self.model.config)

    def move_to(self, device: Any) -> None:
        """Judge on a device from now on."""
        self.model.to(device)

    def token_ids(self, question: str, answer: str) -> list[int]:
        """The token ids that are scored, as reward_inputs.py has them; cut to the context are the question, then the answer."""
        end = self.template.completion(answer)
        text = self.template.prompt(cut_if_possible(question, self.template, self.tokenizer, self.context, [end])) + end
        ids = self.tokenizer(text)["input_ids"][: self.context] or [self.tokenizer.eos_token_id]
        return reward_inputs.strip_end_tokens(np.array(ids, np.int64), self.tokenizer.eos_token_id).tolist()

    @torch.no_grad()
    def scores(self, answers: Sequence[tuple[str, str, str | None]]) -> list[float]:
        """The score of each (question, answer, reference): the reference is not read. Answers of like length are judged together."""
        rows = [self.token_ids(question, answer) for question, answer, _ in answers]
        results = [0.0] * len(rows)
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        for start in range(0, len(order), AT_ONCE):
            batch = order[start : start + AT_ONCE]
            width = max(len(rows[number]) for number in batch)
            end = self.tokenizer.eos_token_id
            ids = torch.tensor([rows[number] + [end] * (width - len(rows[number])) for number in batch])
            for number, score in zip(
                batch, self.model(input_ids=ids.to(self.model.device)).logits[:, 0].tolist(), strict=True
            ):
                results[number] = float(score)
        return results
