"""What a word in a case of crawl2llm.stages.finetune.train sets."""

from __future__ import annotations

from typing import Any

MORE: dict[str, dict[str, Any]] = {
    "packed": {"packing": True},
    "lora": {"adapter": "lora", "adapter_rank": 4, "adapter_alpha": 16, "learning_rate": 0.02},
    "qlora": {"adapter": "qlora", "adapter_rank": 4, "adapter_alpha": 16, "learning_rate": 0.01},
    "some": {"adapter_targets": ["q_proj", "v_proj"]},
}
