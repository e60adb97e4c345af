"""The memory estimate: its parts, what it refuses and what it says then, and the limits of real and written control groups."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.gpu_check import models as gpu_models
from crawl2llm.commands.gpu_check import steps
from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, memory
from crawl2llm.training.estimate import deepspeed, torch
from crawl2llm.training.estimate.shape import AT_ONCE, Shape, Training, muon_bytes, shape_per_process
from crawl2llm.training.memory import fitting_memory_parts
from crawl2llm.training.muon import AT_ONCE as in_muon
from crawl2llm.training.parallel import Degrees
from tests.unit.training.typed import engine_settings, placed, train_settings, tuning_settings

SMALL = Shape(parameters=1_300_000, layers=4, hidden=128, intermediate=384, vocabulary=4096, context=256)
# The defaults of the first release, on a laptop: 111 million parameters, a context of 2,048 and a vocabulary of 32,768.
LARGE = Shape(parameters=111_000_000, layers=30, hidden=576, intermediate=1536, vocabulary=32_768, context=2048)
HOW = Training(micro_batch=1, precision="fp32", zero_stage=0, processes=1)
PLACE = placed()


def test_the_run_that_the_kernel_ended_is_refused_with_what_to_change() -> None:
    with pytest.raises(InputError) as raised:
        fitting_memory_parts(LARGE, engine_settings(precision="bf16", zero_stage=1), PLACE, 8_000_000_000, 1)
    text = str(raised.value)
    assert re.match(
        r"training needs about \d+\.\d GB, and this machine \(or its control group\) has 8\.0 GB free: ", text
    )
    assert "logits 3.2 GB" in text and "pretrain.train.micro_batch to 1" in text
    # What it says does help.
    fitting_memory_parts(
        LARGE, engine_settings(precision="bf16", zero_stage=1), placed(micro_batch=1), 8_000_000_000, 1
    )


@pytest.mark.parametrize("engine", ["deepspeed", "torch"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("cuda", [False, True])
def test_an_estimate_that_is_an_upper_bound_is_called_so(engine: str, again: bool, cuda: bool) -> None:
    place = placed(activation_checkpointing=again)
    with pytest.raises(InputError) as raised:
        fitting_memory_parts(LARGE, engine_settings(engine=engine, zero_stage=1), place, 2_000_000_000, 1, cuda)
    most = " at most" if engine == "deepspeed" and again and cuda else ""
    assert re.match(rf"training needs about \d+\.\d GB{most}, and ", str(raised.value))


def test_what_fits_is_not_refused() -> None:
    parts = fitting_memory_parts(
        SMALL, engine_settings(precision="fp32", zero_stage=1), placed(processes=2), 8_000_000_000, 2
    )
    assert sum(parts.values()) < 2_000_000_000


def test_a_model_that_no_batch_makes_fit() -> None:
    with pytest.raises(InputError, match=r"make the model smaller \(pretrain\.train\.model\)"):
        fitting_memory_parts(
            LARGE, engine_settings(precision="fp32", zero_stage=0), placed(micro_batch=1), 2_000_000_000, 1
        )
    with pytest.raises(InputError, match=r"lower pretrain\.train\.processes from 8"):
        fitting_memory_parts(
            LARGE,
            engine_settings(precision="fp32", zero_stage=0),
            placed(micro_batch=1, processes=8),
            9_000_000_000,
            8,
        )
    with pytest.raises(InputError, match="builds the model in fp32"):
        memory.check_host(7_000_000_000, 100_000_000_000, 8)


def test_a_loaded_model_is_weighed_for_evaluation() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=8192, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    )
    memory.check_loaded("evaluation", model, (16, 256), 1_000_000_000, ["lower it"])
    with pytest.raises(InputError, match=r"evaluation needs about 2\.\d GB, .* logits 1\.6 GB\); lower it"):
        memory.check_loaded("evaluation", model, (256, 256), 1_000_000_000, ["lower it"])
    memory.check_loaded(
        "evaluation", model, (256, 256), 2_000_000_000, ["lower it"]
    )  # whose logits are there in pieces
    with pytest.raises(InputError, match=r"activations 2\.6 GB, logits 1\.6 GB\)"):
        memory.check_loaded("evaluation", model, (256, 2_000_000), 2_000_000_000, ["lower it"])


WIDE = Shape(
    parameters=1_036_000_000,
    layers=22,
    hidden=2048,
    intermediate=5632,
    vocabulary=32_768,
    context=2048,
    width=2048,
    kv=256,
)
EIGHT = placed(processes=8, sequences=256)


def total_after(words: str) -> float:
    """Bytes that a change says are needed after it."""
    return float(re.findall(r"\((\d+\.\d) GB\)", words)[0]) * 1e9


def test_every_change_that_is_named_makes_it_fit() -> None:
    settings = engine_settings(precision="bf16", zero_stage=1, optimizer="adamw")
    now = sum(memory.memory_parts(WIDE, settings, EIGHT, True).values())
    said = memory.changes_that_fit(WIDE, settings, EIGHT, now - 1, 1, True)
    assert [words.split(" (")[0] for words in said] == [
        "set pretrain.train.micro_batch to 4",
        "set pretrain.train.activation_checkpointing to true",
        "set pretrain.train.loss_chunk to 1024, which trains again",
        "set pretrain.train.zero_stage to 2, which trains again",
        "set pretrain.train.offload_optimizer to cpu, which trains again",
        "train on 16 GPUs, not 8",
    ]
    assert all(total_after(words) <= now for words in said)
    # A little less memory, and the small changes are named no more.
    less = memory.changes_that_fit(WIDE, settings, EIGHT, 25e9, 1, True)
    assert less and all(total_after(words) <= 25.05e9 for words in less)
    assert not any("zero_stage" in words or "GPUs" in words for words in less)


@pytest.mark.parametrize("cuda", [True, False])
def test_a_number_of_processes_that_does_not_divide_the_batch_is_not_named(cuda: bool) -> None:
    settings = engine_settings(precision="fp32", zero_stage=1, optimizer="adamw")
    four = placed(micro_batch=4, processes=4, activation_checkpointing=True, sequences=16)
    here = 1 if cuda else 4

    def said(sequences: int) -> str:
        now = here * sum(memory.memory_parts(WIDE, settings, four, cuda).values())
        return " or ".join(
            memory.changes_that_fit(WIDE, settings, replace(four, sequences=sequences), now - 1, here, cuda)
        )

    if cuda:
        assert "train on 8 GPUs" in said(32) and "GPUs" not in said(16)
    else:  # 12 sequences at once do not make 16
        assert "processes from 4 to 3" in said(48) and "processes from 4 to 2 (" in said(16)


def test_processes_are_lowered_on_every_node() -> None:
    settings = engine_settings(precision="fp32", zero_stage=3, optimizer="adamw")
    eight = placed(micro_batch=4, processes=8, activation_checkpointing=True, sequences=96)
    now = 4 * sum(memory.memory_parts(WIDE, settings, eight, False).values())
    fewer = 3 * sum(memory.memory_parts(WIDE, settings, replace(eight, processes=6), False).values())
    said = memory.changes_that_fit(WIDE, settings, eight, now - 1, 4, False)
    assert f"lower pretrain.train.processes from 4 to 3 ({memory.format_bytes(fewer)})" in said


def test_where_no_single_change_is_enough_it_says_what_all_together_leave() -> None:
    settings = engine_settings(precision="bf16", zero_stage=0, optimizer="adamw")
    (words,) = memory.changes_that_fit(WIDE, settings, EIGHT, 12e9, 1, True)
    assert re.match(
        r"set pretrain\.train\.activation_checkpointing to true, pretrain\.train\.micro_batch to \d, pretrain\.train\.zero_stage to 3 \(",
        words,
    )
    assert total_after(words) <= 12e9
    (words,) = memory.changes_that_fit(WIDE, settings, EIGHT, 2e9, 1, True)
    assert "make the model smaller" in words and "still takes" in words
    muon = {"precision": "bf16", "zero_stage": 0, "optimizer": "muon"}
    (words,) = memory.changes_that_fit(WIDE, engine_settings(**muon), EIGHT, 2e9, 1, True)
    assert "ZeRO 0" in words  # Muon needs whole matrices
    (words,) = memory.changes_that_fit(WIDE, engine_settings(**muon, engine="torch"), EIGHT, 2e9, 1, True)
    assert "ZeRO 3" in words  # which that engine puts together


PARALLEL: list[dict[str, int]] = [{}, {"tensor": 2}, {"pipeline": 4}, {"sequence": 2}, {"expert": 2}]


def changed_settings(words: str) -> dict[str, Any]:
    """The settings that a change names."""
    found = re.findall(r"pretrain\.train\.(\w+) (?:from \d+ )?to (true|false|\d+)", words)
    found += [("processes", number) for number in re.findall(r"train on (\d+) GPUs", words)]
    return {key: json.loads(value) for key, value in found}


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize("parallel", PARALLEL, ids=str)
@pytest.mark.parametrize("engine", ["torch", "deepspeed"])
def test_no_change_is_named_that_the_trainer_refuses(engine: str, parallel: dict[str, int], cuda: bool) -> None:
    model = {"type": "mixtral" if "expert" in parallel else "llama", "context": 2048}
    tried, kinds = 0, set()
    for stage, compiled, selective, optimizer, size in itertools.product(
        range(4), (False, True), (False, True), ("adamw", "muon"), (4e9, 12e9, 20e9, 30e9, 40e9)
    ):
        given_keys = {"precision": "bf16", "zero_stage": stage, "engine": engine, "optimizer": optimizer}
        given_keys |= {"compile_layers": compiled, "model": model, "global_batch_tokens": 64 * 2048}
        given_keys |= {"parallel": parallel}
        at = {"micro_batch": 4, "processes": 8, "activation_checkpointing": selective}
        at |= {"selective_checkpointing": selective, "async_checkpoints": engine == "torch"}
        here = 1 if cuda else 8
        try:
            checks.check_settings(train_settings(**given_keys, **at), 8)
        except InputError:
            continue
        settings, place = engine_settings(**given_keys), placed(**at, sequences=64, parallel=parallel)
        if here * sum(memory.memory_parts(WIDE, settings, place, cuda).values()) <= here * size:
            continue
        for words in memory.changes_that_fit(WIDE, settings, place, here * size, here, cuda):
            made = train_settings(**{**given_keys, **at, **changed_settings(words)})
            checks.check_settings(made, made.processes)
            degrees = Degrees.of_settings(made)
            assert 64 * degrees.replica_size // (made.micro_batch * made.processes) >= degrees.pipeline
            tried, kinds = tried + 1, kinds | changed_settings(words).keys()
    assert tried > 10 or (engine == "deepspeed" and parallel)
    assert {"zero_stage", "micro_batch"} <= kinds or parallel


@pytest.mark.parametrize(("micro_batch", "measured"), [(8, 28.30), (16, 43.63)])
def test_eight_bits_take_what_an_h200_measured(micro_batch: int, measured: float) -> None:
    """GiB that torch gave to tensors of the 1B Llama of gpu-check, compiled, with the loss in pieces."""
    settings = engine_settings(engine="torch", zero_stage=0, **steps.FUSED, **steps.EIGHT_BITS)
    estimated = steps.estimate_memory(gpu_models.llama_config("1B", 32_768, 2048), settings, micro_batch)
    assert sum(estimated.values()) / 2**30 == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("batch", [4, 8, 16])
def test_a_fine_tuning_is_not_told_to_take_more_gpus_than_a_batch_has_pairs(batch: int) -> None:
    settings = tuning_settings(precision="bf16", zero_stage=3, engine="torch")
    at = placed(micro_batch=1, processes=4, activation_checkpointing=True, largest=batch)
    now = sum(memory.memory_parts(WIDE, settings, at, True).values())
    words = " or ".join(memory.changes_that_fit(WIDE, settings, at, now - 1, 1, True, "finetune.train"))
    assert ("train on 8 GPUs, not 4" in words) == (batch >= 8) and ("GPUs" in words) == (batch >= 8)


def beginning(shape: Shape, how: Training) -> dict[str, int]:
    """What the engine torch needs when a backward pass begins: a checkpoint may need more, whatever the batch."""
    return torch.step_moments(shape, how)[0]


@pytest.mark.parametrize("estimate", [deepspeed.peak_memory, beginning])
@given(st.integers(1, 64), st.sampled_from(["fp32", "bf16"]), st.integers(0, 3), st.integers(1, 64), st.booleans())
def test_it_grows_with_the_batch_and_shrinks_with_sharding(
    estimate: Any, micro: int, precision: str, stage: int, processes: int, recomputed: bool
) -> None:
    def needed(batch: int, zero: int, ranks: int, again: bool, cuda: bool = False) -> dict[str, int]:
        how = Training(
            micro_batch=batch, precision=precision, zero_stage=zero, processes=ranks, recomputed=again, cuda=cuda
        )
        found: dict[str, int] = estimate(LARGE, how)
        return found

    def total(*how: Any) -> int:
        return sum(needed(*how).values())

    assert total(micro + 1, stage, processes, recomputed) > total(micro, stage, processes, recomputed)
    # The second process brings what it exchanges with the first; from then on more of them need less each.
    assert total(micro, stage, processes + 2, recomputed) <= total(micro, stage, processes + 1, recomputed)
    assert total(micro, stage, processes, True) < total(micro, stage, processes, False)
    if stage == 1:
        assert total(micro, 2, processes, recomputed) <= total(micro, 1, processes, recomputed)
    assert needed(micro, 3, 8, recomputed, True)["weights"] <= 2 * 4 * LARGE.parameters


def test_a_mean_of_the_weights_takes_four_bytes_a_parameter() -> None:
    """Shared out under ZeRO; in a checkpoint too."""
    for engine, stage, split in (
        ("deepspeed", 0, 1),
        ("deepspeed", 1, 2),
        ("torch", 0, 1),
        ("torch", 1, 2),
        ("torch", 3, 2),
    ):
        settings = engine_settings(precision="bf16", zero_stage=stage, engine=engine)
        plain, more = (
            memory.memory_parts(WIDE, replace(settings, ema=ema), placed(processes=2), True)["optimizer"]
            for ema in (None, 0.99)
        )
        assert more - plain == 4 * WIDE.parameters // split


def test_muon_keeps_one_moment_of_its_matrices() -> None:
    """Under any stage of the engine torch; an update's arrays are those of a piece, not of all matrices."""
    muon = replace(WIDE, matrices=900_000_000)
    for stage, split in ((0, 1), (3, 8)):
        settings = engine_settings(precision="bf16", zero_stage=stage, engine="torch")
        place = placed(processes=8)
        one, two = (memory.memory_parts(shape, settings, place, True)["optimizer"] for shape in (muon, WIDE))
        assert two - one == 4 * 900_000_000 // split
    assert muon_bytes(muon, HOW) == 5 * 4 * AT_ONCE == 5 * 4 * in_muon < 200_000_000
    assert muon_bytes(replace(WIDE, matrices=1000), HOW) == 5 * 4 * 1000


def test_gradients_are_counted_with_one_micro_batch_only_where_they_are_there() -> None:
    """When the backward pass begins, with all activations: in DDP's buckets, and from the micro-batches before."""
    for stage, processes, several, one in (
        (0, 1, 4, 0), (0, 2, 4, 4), (1, 1, 4, 0), (1, 4, 4, 0), (2, 4, 1, 0), (3, 4, 1, 0),
    ):  # fmt: skip
        settings = engine_settings(precision="bf16", zero_stage=stage, engine="torch")
        place = placed(processes=processes, activation_checkpointing=False)
        for largest, bytes_each in ((2 * 8 * processes, several), (8 * processes, one)):
            found = memory.memory_parts(LARGE, settings, replace(place, largest=largest), True)
            assert found["activations"] and found["gradients"] == bytes_each * LARGE.parameters


def test_a_process_of_a_pipeline_gathers_a_layer_as_large_as_it_is() -> None:
    """Not a stage's parameters over all layers; nor of two tables one."""
    model = Shape(
        parameters=10_000_000 + 8 * 5_000_000, layers=8, hidden=1000, intermediate=4000, vocabulary=5000, context=64, tables=10_000_000
    )  # fmt: skip
    assert model.layer_parameters == 5_000_000
    assert shape_per_process(model, Degrees(pipeline=2)).layer_parameters == pytest.approx(5_000_000, rel=0.2)
    assert shape_per_process(model, Degrees(tensor=2)).layer_parameters == pytest.approx(2_500_000, rel=0.2)
    assert shape_per_process(model, Degrees(sequence=2)).layer_parameters == 5_000_000


BILLION = Shape(
    parameters=1_036_085_248, layers=22, hidden=2048, intermediate=5632, vocabulary=32_768, context=2048, width=2048, kv=256,
)  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "changes", "recomputed", "gibibytes"),
    [
        (0, {}, False, 53.025),
        (1, {}, False, 46.087),
        (1, {}, True, 18.197),
        (0, {"compile_layers": True, "loss_chunk": 4096}, False, 36.697),
        (1, {"compile_layers": True, "loss_chunk": 4096}, False, 35.118),
    ],
)
def test_what_an_h100_gave_to_tensors(stage: int, changes: dict[str, Any], recomputed: bool, gibibytes: float) -> None:
    """Peaks of torch.cuda.max_memory_allocated of the engine torch in one process, 8 × 2,048 tokens in bf16; without CUDA's own."""
    settings = engine_settings(precision="bf16", zero_stage=stage, engine="torch", **changes)
    placement = placed(largest=8, activation_checkpointing=recomputed)
    estimated = memory.memory_parts(BILLION, settings, placement, cuda=True)
    assert sum(estimated.values()) - estimated["program"] == pytest.approx(gibibytes * 2**30, rel=0.03)


def test_a_teacher_takes_its_weights_and_a_piece_of_its_logits() -> None:
    settings, at = engine_settings(precision="bf16", zero_stage=0), placed(micro_batch=1)
    alone = memory.memory_parts(WIDE, settings, at, True)
    both = memory.memory_parts(replace(WIDE, teacher=WIDE), settings, at, True)
    assert {**both, "teacher": 0} == {**alone, "teacher": 0}
    assert 2 * WIDE.parameters + 2 * 2**28 < both["teacher"] < 2 * WIDE.parameters + 10**9
