"""What a model writes after prompts, several at a time; each text is the one that it would write alone.

Prompts of different lengths are padded on their left, so that all texts begin at the same place; the padding is masked and has no position.
Another number of texts at a time can move the last digits of logits, as any other shape of a product of matrices can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, TopPLogitsWarper

from crawl2llm.stages.evaluate.settings import GenerateSettings
from crawl2llm.training.checks import MASKED_TYPES
from crawl2llm.training.model_loading import context_of
from crawl2llm.training.sampling import sample_tokens, uniform_draws

Row = dict[str, Any]
STRETCH = 4096  # prompts whose tokens are held at once


class Picker(LogitsProcessor):
    """Picks the next token of each text, and keeps the nats that it has by the model.

    seeds: of texts that are sampled; None takes the likeliest token each time. A sampled text is a function of its seed alone, whatever is
    sampled beside it.
    """

    def __init__(self, seeds: Sequence[int] | None, max_tokens: int, temperature: float, top_p: float) -> None:
        self.nats: list[torch.Tensor] = []
        self.temperature = temperature if seeds else 0.0
        self.draws = torch.tensor(
            [uniform_draws(seed, ("evaluate.generate",), max_tokens).tolist() for seed in seeds or ()]
        )
        self.nucleus = TopPLogitsWarper(top_p) if seeds and top_p < 1 else None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """scores: the model's logits [texts, vocabulary]; returned as 0 for the token that is picked and -inf for all others."""
        logits = scores.float()
        if self.nucleus:  # of the tempered distribution
            logits = self.nucleus(input_ids, logits / self.temperature) * self.temperature
        at = self.draws[:, len(self.nats)].double().to(scores.device) if self.temperature else logits.new_zeros(0)
        tokens = sample_tokens(logits, at, self.temperature)[:, None]
        self.nats.append(-scores.float().log_softmax(-1).gather(1, tokens)[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)


class Writer:
    """A model that writes texts, as many at a time as `batch_tokens` allows: padded prompts and what is written after them."""

    def __init__(self, model: Any, tokenizer: Any, settings: GenerateSettings) -> None:
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.context = context_of(model.config)
        self.max_new_tokens = min(settings.max_new_tokens, self.context // 2)

    def write_texts(self, prompts: Sequence[str], seeds: Sequence[int] | None = None) -> Iterator[tuple[int, Row]]:
        """(place in `prompts`, what the model writes after it), of each STRETCH of them the shortest first.

        Of each text: `text`, `tokens`, `nats` of these by the model itself, `ended` by itself, `cut` prompt. seeds: of sampled texts, one
        for each prompt; None is greedy. A prompt that leaves no room in the context is cut on its left.
        """
        for start in range(0, len(prompts), STRETCH):
            stretch = prompts[start : start + STRETCH]
            full_ids = [self.tokenizer(prompt)["input_ids"] or [self.tokenizer.eos_token_id] for prompt in stretch]
            ids = [row[-(self.context - self.max_new_tokens) :] for row in full_ids]
            for batch in self.length_batches([len(row) for row in ids]):
                batch_seeds = [seeds[start + place] for place in batch] if seeds else None
                for place, row in zip(
                    batch, self._write_batch([ids[place] for place in batch], batch_seeds), strict=True
                ):
                    yield start + place, {**row, "cut": len(ids[place]) < len(full_ids[place])}

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

    def _write_batch(self, ids: list[list[int]], seeds: list[int] | None) -> Iterator[Row]:
        end, width = self.tokenizer.eos_token_id, max(map(len, ids))
        input_ids = torch.tensor([[end] * (width - len(row)) + row for row in ids], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], device=self.model.device)
        picker = Picker(seeds, self.max_new_tokens, self.settings.temperature, self.settings.top_p)
        with torch.no_grad():
            out = self.model.generate(
                input_ids, attention_mask=mask, max_new_tokens=self.max_new_tokens, do_sample=False, eos_token_id=end,
                pad_token_id=self.tokenizer.pad_token_id, logits_processor=LogitsProcessorList([picker]),
            )  # fmt: skip
        for output_ids, nats in zip(out[:, width:].tolist(), torch.stack(picker.nats, 1).tolist(), strict=True):
            count = output_ids.index(end) + 1 if end in output_ids else len(output_ids)
            yield {
                "text": str(self.tokenizer.decode(output_ids[:count], skip_special_tokens=True)).strip(),
                "tokens": count,
                "nats": round(sum(nats[:count]), 4),
                "ended": output_ids[count - 1] == end,
            }
