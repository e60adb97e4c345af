"""The settings of a fine-tuning as engines and estimates of pre-training read them."""

from __future__ import annotations

from typing import Any

from scripts.workflow.config import completed


def whole(settings: dict[str, Any], step: str = "finetune.train") -> dict[str, Any]:
    """`settings` of finetune.train, or of another `step` that trains as it does, with defaults for what they do not name: those of
    pretrain.train (AdamW, no mean of the weights, …), and of finetune.train.

    The learning rate ends at 0.
    """
    defaults = {**completed("pretrain.train", {}), "min_learning_rate_ratio": 0.0, **completed("finetune.train", {})}
    return {**defaults, **completed(step, settings)}
