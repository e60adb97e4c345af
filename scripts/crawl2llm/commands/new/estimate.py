"""What a run would take, from a sample: tokens, a model that fits, hours here and on one node of eight H100. All estimates."""

from __future__ import annotations

import math
import os
import time
from typing import NamedTuple

from crawl2llm.chain import config as configuration
from crawl2llm.chain import steps
from crawl2llm.commands.new.places import Source
from crawl2llm.commands.new.sample import Sample
from crawl2llm.core.processors import usable_cores
from crawl2llm.stages.corpus.settings import SplitSettings
from crawl2llm.training import auto
from crawl2llm.training.cost_estimate import node_mfu
from crawl2llm.training.gpus import KINDS
from crawl2llm.training.pretraining_settings import ResolvedSettings, TrainSettings
from crawl2llm.training.vocabulary_size import TABLE, vocabulary_entries

# Bytes of text a token by entries of the vocabulary, English: 2.7 was measured on a run of this project,
# the others are what such tokenizers usually reach.
BYTES_A_TOKEN = dict(zip((number for _, number in TABLE), (2.7, 3.1, 3.5, 3.9, 4.2, 4.4), strict=True))
# the steps up to the tokens take this many times what reading, language and heuristics of a sample take
DATA_FACTOR = 4.0
# To start a task: Python, the libraries, Snakemake's own. Measured on a run that had hardly any data: 1.0 to 1.3 seconds of
# processor time a task, sampled and so a lower bound.
TASK_SECONDS = 1.5
LARGEST_TIMED = 3_000_000  # training tokens: their row of auto.TABLE is the largest model whose steps are timed here
TRAINING_SECONDS = 8.0  # the same for the pretraining: torch and DeepSpeed in each of its processes
STEP_AFTER_DATA = steps.PLAN  # the steps up to the tokens stand before it
ANY_SOURCE = {"name": "own", "kind": "warc", "paths": ["own"]}  # any source that is no crawl of this machine
H100 = KINDS["h100"].peak
NODE_CORES, NODE_GPUS = 96, 8
HELD_OUT = 100  # documents that a config of `crawl2llm new` wants to be held out
MOST_HELD_OUT = 0.1  # most that it takes from training for them, as the demo does


class Estimate(NamedTuple):
    """What is expected of a run; seconds are of the clock."""

    documents: int  # to train on and held out
    text_bytes: int
    tokens: int
    vocabulary: int
    settings: ResolvedSettings  # pretrain.train, with a number for each `auto`
    parameters: int
    operations: float
    data_here: float
    train_here: float
    data_node: float
    train_node: float
    tasks: int  # up to the tokens
    starts_here: float  # within data_here
    validation_fraction: float  # of the documents
    emptied_languages: list[str]  # languages that were asked for, of which the filters left nothing in the sample


def task_starts(shards: int, cores: int) -> tuple[int, float]:
    """(tasks up to the tokens, seconds of the clock to start them): the steps one after the other, each on all cores."""
    config = configuration.validate({"ingest": {"extract": {"shards": shards, "sources": [ANY_SOURCE]}}})
    order = steps.used_steps(config)
    data_steps = order[: order.index(STEP_AFTER_DATA)]
    task_counts = [len(steps.task_ids(step, config)) for step in data_steps if step != "crawl.render"]
    return sum(task_counts), TASK_SECONDS * sum(-(-number // cores) for number in task_counts)


def operations_per_second(settings: ResolvedSettings, vocabulary: int) -> float:
    """Floating-point operations a second of training on this machine, idle: a few steps with AdamW of the model, or of one with 1.4
    million parameters if that is smaller: the smaller a model, the more of its time goes to what does not compute.

    settings: pretrain.train.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the workflow sets it (rules/common.smk)
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(settings.threads)
    largest, shape = auto.row_model(auto.table_row(LARGEST_TIMED)), settings.model
    if auto.parameter_totals(shape, vocabulary)[0] > auto.parameter_totals(largest, vocabulary)[0]:
        shape = largest
    assert shape.intermediate_size is not None  # of no row of auto.TABLE
    config = LlamaConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros((settings.micro_batch, shape.context), dtype=torch.long)
    cost = auto.training_flops_per_token(shape, vocabulary) * tokens.numel()
    times = []
    for _ in range(3):  # the first warms up
        start = time.process_time()  # of all threads: the machine may be busy with other things
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append((time.process_time() - start) / settings.threads)
    return cost / min(times[1:])


def validation_operations(settings: ResolvedSettings, vocabulary: int, held_out_tokens: int) -> float:
    """Floating-point operations of all validations: a forward pass, a third of a training's."""
    assert settings.steps is not None
    number = -(-settings.steps // settings.validate_every) if settings.validate_every else 1
    tokens = number * min(settings.validation_tokens, held_out_tokens)
    return tokens * auto.training_flops_per_token(settings.model, vocabulary) / 3


def validation_fraction(documents: float) -> float:
    """The share of so many documents that is held out, in whole per cent: what makes HELD_OUT of them, from the key's default on, at most
    MOST_HELD_OUT.
    """
    least = SplitSettings().validation_fraction
    return min(MOST_HELD_OUT, max(least, math.ceil(100 * HELD_OUT / max(documents, 1)) / 100))


def estimate_run(
    samples: list[tuple[Source, Sample]], languages: list[str], shards: int, gpus: int = NODE_GPUS
) -> Estimate:
    """What a run over the sources would take, if the rest of the files is as their sample. gpus: of the node; 0: NODE_GPUS."""
    documents = text = reading = 0.0
    for source, sample in samples:
        scale = source.bytes / max(sample.bytes, 1)
        documents += scale * sum(sample.kept_documents[name] for name in languages)
        text += scale * sum(sample.kept_bytes[name] for name in languages)
        reading += scale * sample.seconds
    held_out_share = validation_fraction(documents)
    held_out_text, text = held_out_share * text, (1 - held_out_share) * text
    vocabulary = vocabulary_entries("auto", int(text))
    tokens = int(text / BYTES_A_TOKEN[vocabulary])
    settings = auto.resolve(TrainSettings(), max(tokens, 300), vocabulary)
    assert settings.steps is not None  # as epochs are auto
    trained = settings.steps * settings.global_batch_tokens
    operations = float(auto.training_flops_per_token(settings.model, vocabulary)) * trained
    usable = usable_cores()
    tasks, start_seconds = task_starts(shards, usable)
    validations = validation_operations(settings, vocabulary, int(held_out_text / BYTES_A_TOKEN[vocabulary]))
    processes = gpus or NODE_GPUS
    gpu_seconds = (operations + validations) / (processes * H100 * node_mfu(settings.model, processes))
    return Estimate(
        documents=round(documents),
        text_bytes=round(text),
        tokens=tokens,
        vocabulary=vocabulary,
        settings=settings,
        parameters=auto.parameter_totals(settings.model, vocabulary)[0],
        operations=operations,
        data_here=DATA_FACTOR * reading / usable + start_seconds,
        train_here=(operations + validations) / operations_per_second(settings, vocabulary) + TRAINING_SECONDS,
        data_node=DATA_FACTOR * reading / NODE_CORES + task_starts(shards, NODE_CORES)[1],
        train_node=gpu_seconds + TRAINING_SECONDS,
        tasks=tasks,
        starts_here=start_seconds,
        validation_fraction=held_out_share,
        emptied_languages=[name for name in languages if not any(sample.kept_documents[name] for _, sample in samples)],
    )
