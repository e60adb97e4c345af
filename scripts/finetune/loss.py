"""The loss of a model's answers: nats a token of the completion, the prompt given."""

from __future__ import annotations

from typing import Any

from scripts.finetune.template import Template
from scripts.workflow.console import Progress


def tokens(tokenizer: Any, prompt: str, completion: str, max_length: int) -> tuple[list[int], int]:
    """(token ids of prompt, completion and end token cut to `max_length`; how many of them are the prompt's).

    As TRL does it: the text is tokenized in one piece, and the prompt is what its own tokens share with that.
    """
    alone = tokenizer(prompt)["input_ids"]
    whole = tokenizer(prompt + completion + tokenizer.eos_token)["input_ids"]
    shared = 0
    for left, right in zip(alone, whole, strict=False):
        if left != right:
            break
        shared += 1
    return whole[:max_length], min(shared, max_length)


def completion_loss(
    model: Any, tokenizer: Any, pairs: list[dict[str, Any]], template: Template, max_length: int, batch: int = 16
) -> tuple[float, int]:
    """(mean negative log-likelihood in nats, number of tokens) over the answers' tokens, end token included."""
    import torch

    items = sorted(
        (
            tokens(tokenizer, template.prompt(p["question"]), template.completion(p["answer"]), max_length)
            for p in pairs
        ),
        key=lambda item: len(item[0]),
    )
    total, number = 0.0, 0
    progress = Progress(len(items), "held-out pairs")
    model.eval()
    for start in range(0, len(items), batch):
        part = items[start : start + batch]
        width = max(len(ids) for ids, _ in part)
        given = torch.full((len(part), width), tokenizer.pad_token_id)
        wanted = torch.full((len(part), width), -100)
        for row, (ids, shared) in enumerate(part):
            given[row, : len(ids)] = torch.tensor(ids)
            wanted[row, shared : len(ids)] = torch.tensor(ids[shared:])
        with torch.no_grad():
            # Padding is on the right of a causal model, so that no token of interest sees it.
            logits = model(input_ids=given.to(model.device)).logits[:, :-1].float()
            target = wanted[:, 1:].to(model.device)
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), target.reshape(-1), ignore_index=-100, reduction="sum"
            )
        total += float(loss)
        number += int((target != -100).sum())
        progress.add(len(part))
    return (total / number if number else 0.0), number
