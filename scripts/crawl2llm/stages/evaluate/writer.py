"""What a model writes after prompts, several at a time; each text is the one that it would write alone.

Prompts of different lengths are padded on their left, so that all texts begin at the same place; the padding is masked and has no position.
Another number of texts at a time can move the last digits of logits, as any other shape of a product of matrices can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from crawl2llm.stages.evaluate.settings import GenerateSettings
from crawl2llm.training.checks import MASKED_TYPES
from crawl2llm.training.end_tokens import answer_text, further_ends
from crawl2llm.training.model_loading import context_of
from crawl2llm.training.sampling import Answer, Choice, token_nats, uniform_draws
from crawl2llm.training.slots import SLOT_TYPES, SlotDrawer, drawer_for

Row = dict[str, Any]
STRETCH = 4096  # prompts whose tokens are held at once


class Picker(LogitsProcessor):
    """Picks the next token of each text by draws [texts, most tokens], and keeps its nats: for types that transformers alone can run."""

    def __init__(self, choice: Choice, draws: torch.Tensor) -> None:
        self.choice, self.draws = choice, draws
        self.nats: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """scores: the model's logits [texts, vocabulary]; returned as 0 for the token that is picked and -inf for all others."""
        tokens = self.choice.pick_tokens(scores.float(), self.draws[:, len(self.nats)])
        self.nats.append(token_nats(scores.float(), tokens))
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


class Writer:
    """A model that writes texts, as many at a time as `batch_tokens` allows: padded prompts and what is written after them."""

    def __init__(self, model: Any, tokenizer: Any, settings: GenerateSettings) -> None:
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.context = context_of(model.config)
        self.max_new_tokens = min(settings.max_new_tokens, self.context // 2)

    def write_texts(self, prompts: Sequence[str], seeds: Sequence[int] | None = None) -> Iterator[tuple[int, Row]]:
        """(place in `prompts`, what the model writes after it), of each STRETCH of them the shortest first.

        Of each text: `text`, `tokens`, `nats` of these by the model itself, `ended` by itself, `cut` prompt. seeds: of sampled texts, one
        for each prompt, on which alone the text depends; None is greedy. A prompt that leaves no room in the context is cut on its left.
        """
        temperature = self.settings.temperature if seeds else 0.0
        end = self.tokenizer.eos_token_id
        choice = Choice(end, temperature, self.settings.top_p, True, further_ends(self.model, end))
        for start in range(0, len(prompts), STRETCH):
            stretch = prompts[start : start + STRETCH]
            full_ids = [self.tokenizer(prompt)["input_ids"] or [self.tokenizer.eos_token_id] for prompt in stretch]
            ids = [row[-(self.context - self.max_new_tokens) :] for row in full_ids]
            longest = max(map(len, ids)) + self.max_new_tokens
            drawer = None
            if self.model.config.model_type in SLOT_TYPES:
                drawer = drawer_for(self.model, choice, max(1, self.settings.batch_tokens // longest))
            batches: Iterable[list[int]] = self.length_batches([len(row) for row in ids])
            if isinstance(drawer, SlotDrawer):
                batches = [list(range(len(ids)))]
            for batch in batches:
                draws = self._draws_of([seeds[start + place] for place in batch] if seeds else None, len(batch))
                rows = [ids[place] for place in batch]
                answers = drawer.draw(rows, draws) if drawer else self._draw_by_transformers(rows, choice, draws)
                for place, answer in zip(batch, answers, strict=True):
                    yield (
                        start + place,
                        {**self._text_row(answer, choice), "cut": len(ids[place]) < len(full_ids[place])},
                    )

    def _draws_of(self, seeds: list[int] | None, texts: int) -> torch.Tensor:
        """float64 [texts, max_new_tokens] by the seeds of texts, rounded to fp32."""
        if seeds is None:
            return torch.zeros(texts, self.max_new_tokens, dtype=torch.float64)
        rows = [uniform_draws(seed, ("evaluate.generate",), self.max_new_tokens).tolist() for seed in seeds]
        return torch.tensor(rows, dtype=torch.float32).double()

    def _text_row(self, answer: Answer, choice: Choice) -> Row:
        return {
            "text": answer_text(self.tokenizer, answer.ids, choice.further_ends),
            "tokens": len(answer.ids),
            "nats": round(sum(answer.nats), 4),
            "ended": answer.ids[-1] in choice.ends,
        }

    def length_batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Places of prompts of these lengths, in tokens, that are written together; at least one.

        Types that are not known to keep padding out of a text (`MASKED_TYPES`), as those with a state, get prompts of one length.
        """
        padded = self.model.config.model_type in MASKED_TYPES
        token_limit = self.settings.batch_tokens
        batch = list[int]()
        for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
            full = (len(batch) + 1) * (lengths[place] + self.max_new_tokens) > token_limit
            if batch and (full or not (padded or lengths[place] == lengths[batch[-1]])):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _draw_by_transformers(self, ids: list[list[int]], choice: Choice, draws: torch.Tensor) -> list[Answer]:
        """Answers of a type whose state transformers passes on in its own way."""
        end, width = choice.end, max(map(len, ids))
        input_ids = torch.tensor([[end] * (width - len(row)) + row for row in ids], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], device=self.model.device)
        picker = Picker(choice, draws.to(self.model.device))
        with torch.no_grad():
            out = self.model.generate(
                input_ids, attention_mask=mask, max_new_tokens=self.max_new_tokens, do_sample=False, eos_token_id=list(choice.ends),
                pad_token_id=self.tokenizer.pad_token_id, logits_processor=LogitsProcessorList([picker]),
            )  # fmt: skip
        answers = [Answer() for _ in ids]
        for answer, row, nats in zip(
            answers, out[:, width:].tolist(), torch.stack(picker.nats, 1).tolist(), strict=True
        ):
            answer.add_tokens(row, nats, choice.ends, self.max_new_tokens)
        return answers
