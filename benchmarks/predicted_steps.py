"""The speed that pretrain.plan predicts for a GPU beside what was measured there, by setting: benchmarks/results/gpu_*.json.

    python -m benchmarks.predicted_steps          # counts all steps with fake tensors: no GPU, about a minute on a CPU

It prints a table, and writes benchmarks/results/predicted_steps.json. The rates are those of training/prediction/rates.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from crawl2llm.core.root import ROOT
from crawl2llm.training import gpus
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.prediction.checked_models import CONTEXT, SIZES, VOCABULARY, llama_config
from crawl2llm.training.prediction.predict import DEEPSPEED_FACTOR, Step, add_up, whole_step
from crawl2llm.training.prediction.rates import sheet_rates
from crawl2llm.training.pretraining_settings import TrainSettings

RESULTS = ROOT / "benchmarks/results"
WIDE_HEADS = {"num_attention_heads": 16}


@dataclass(frozen=True)
class Row:
    """A step that was measured. settings: of pretrain.train; shape: changes of the model of this size."""

    name: str
    tokens_per_second: float
    settings: dict[str, Any]
    micro_batch: int = 8
    shape: dict[str, Any] | None = None
    size: str = "1B"
    context: int = CONTEXT
    vocabulary: int = VOCABULARY


def measured_rows() -> list[Row]:
    """The steps of the three benchmarks on an H100 that the trainer itself took, in bf16."""
    rows = []
    for line in json.loads((RESULTS / "gpu_check.json").read_text())["lines"]:
        values, what = line.get("values", {}), line["what"]
        if line["check"] == "steps" and "settings" in values and not values["eight_bits"]:
            rows.append(
                Row(f"gpu-check: {what}", values["tokens_per_second"], values["settings"], values["micro_batch"])
            )
    for name, row in json.loads((RESULTS / "gpu_steps.json").read_text())["rows"].items():
        shape = WIDE_HEADS if "heads of 128" in name else None
        rows.append(
            Row(name, row["tokens_per_second"], {"zero_stage": 0, **row["settings"]}, row["micro_batch"], shape)
        )
    small = json.loads((RESULTS / "gpu_training.json").read_text())
    settings = {"zero_stage": 0, **small["plan"]["settings"]}
    rate = small["contenders"]["torch"]["tokens_per_second"]
    rows.append(
        Row("125M, compiled", rate, settings, 32, None, "125M", small["plan"]["context"], small["plan"]["vocabulary"])
    )
    return rows


def predicted_rate(row: Row, gpu: str = "h100") -> tuple[float, dict[str, float]]:
    """(tokens/s, seconds by part) of a row's step, as pretrain.plan predicts it."""
    from crawl2llm.training import initial
    from crawl2llm.training.prediction import count

    kind = gpus.find(gpu)
    rates = sheet_rates(kind) if kind else None
    assert rates is not None
    train = TrainSettings.model_validate({"engine": "torch", "learning_rate": 3e-4, "precision": "bf16"} | row.settings)

    def count_layers(layers: int) -> Any:
        config = llama_config(row.size, row.vocabulary, row.context, **(row.shape or {}), num_hidden_layers=layers)
        return count.count_step(
            config, EngineSettings.of_pretraining(train), row.micro_batch, row.context, train.activation_checkpointing,
            train.selective_checkpointing,
        )  # fmt: skip

    whole = initial.empty_model(llama_config(row.size, row.vocabulary, row.context, **(row.shape or {})))
    step = Step(1, 1, 1, sum(value.numel() for value in whole.parameters()), train.zero_stage, 2, 4)
    parts = whole_step(count_layers, SIZES[row.size][1], rates, train.compile_layers)
    seconds, every = add_up(parts, step, rates)
    return row.micro_batch * row.context / seconds / (DEEPSPEED_FACTOR if train.engine == "deepspeed" else 1), every


def main() -> int:
    out = []
    print(
        "| settings | measured, tokens/s | predicted | error | products, attention, elementwise, loss, optimizer, ms |\n"
        "|---|---|---|---|---|"
    )
    for row in measured_rows():
        rate, parts = predicted_rate(row)
        error = rate / row.tokens_per_second - 1
        milliseconds = {part: round(1000 * time, 1) for part, time in parts.items()}
        out.append({"settings": row.name, "measured": round(row.tokens_per_second), "predicted": round(rate), "error": round(error, 4),
                    "milliseconds": milliseconds})  # fmt: skip
        shown = [
            milliseconds.get(part, 0.0) for part in ("matrix products", "attention", "elementwise", "loss", "optimizer")
        ]
        print(
            f"| {row.name} | {row.tokens_per_second:,.0f} | {rate:,.0f} | {error:+.1%} | {', '.join(map(str, shown))} |",
            flush=True,
        )
    (RESULTS / "predicted_steps.json").write_text(json.dumps({"gpu": "h100", "rows": out}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
