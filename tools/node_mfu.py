"""Prints PREDICTED_MFU of scripts/crawl2llm/training/cost_estimate.py: the predicted MFU of the models that `auto` chooses, on H100s.

python -m tools.node_mfu

It counts the steps of each with fake tensors, with the settings that `crawl2llm new --gpus` writes: some minutes, no GPU.
"""

from __future__ import annotations

from crawl2llm.commands.new.estimate import NODE_GPUS
from crawl2llm.stages.pretrain import plan
from crawl2llm.training import auto, gpus
from crawl2llm.training.cost_estimate import gpu_settings
from crawl2llm.training.prediction.predict import Predictor
from crawl2llm.training.prediction.rates import sheet_rates
from crawl2llm.training.pretraining_settings import ResolvedSettings, TrainSettings
from crawl2llm.training.vocabulary_size import vocabulary_entries

BYTES_A_TOKEN = 4  # about, to choose a vocabulary


def predicted_mfu(row: auto.Row, processes: int) -> float:
    """The predicted MFU of the model that goes with a row, on so many H100 of a node."""
    tokens = max(row.tokens, 300)
    vocabulary = vocabulary_entries("auto", BYTES_A_TOKEN * tokens)
    settings: ResolvedSettings = auto.resolve(TrainSettings(), tokens, vocabulary)
    fast = gpu_settings(settings.global_batch_tokens, settings.model.context, processes)
    keys = settings.model_dump(by_alias=True) | fast | {"epochs": "auto"}
    train = TrainSettings.model_validate(keys)
    kind = gpus.find("h100")
    rates = sheet_rates(kind) if kind else None
    assert kind and rates
    summary = plan.training_facts(train, None, vocabulary)
    return float(f"{Predictor(summary, kind, rates).predict(train)['mfu']:.2g}")


def main() -> int:
    for row in auto.TABLE:
        pair = predicted_mfu(row, 1), predicted_mfu(row, NODE_GPUS)
        print(f"    ({row.hidden_size}, {row.layers}): {pair},", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
