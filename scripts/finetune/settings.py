"""The settings of a fine-tuning as engines and estimates of pre-training read them."""

from __future__ import annotations

from typing import Any

from scripts.workflow.config import completed


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of finetune.train, with pretrain.train's defaults for what they do not name: AdamW, no mean of the weights, …

    The learning rate ends at 0.
    """
    return {**completed("pretrain.train", {}), "min_learning_rate_ratio": 0.0, **completed("finetune.train", settings)}
