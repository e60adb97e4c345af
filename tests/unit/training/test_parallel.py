"""Every placement of pretrain.train.parallel against a single process, in groups of one, two and four; and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain import plan
from crawl2llm.training import checks, memory, resource_plan
from crawl2llm.training.estimate.shape import shape_per_process
from crawl2llm.training.parallel import Degrees, Place, check_degrees, check_model
from crawl2llm.training.pretraining_settings import PlanSettings
from tests.unit.stages.pretrain.placed_apart import CASES, MORE
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.stages.pretrain.test_engines import side_by_side
from tests.unit.training.typed import engine_settings, placed, train_settings

LONG = "CRAWL2LLM_LONG"  # see tests/conftest.py
CHOSEN = {number: [*names, *(MORE.get(number, []) if LONG in os.environ else [])] for number, names in CASES.items()}
ALL = [
    *((number, name) for number in (2, 4) for name in CASES[number]),
    *(pytest.param(number, name, marks=pytest.mark.long) for number in (2, 4) for name in MORE[number]),
]
TORCH: dict[str, Any] = {"engine": "torch", "zero_stage": 0}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What placed_apart.py wrote, by the number of processes; each group finds the checkpoints of the one before."""
    folder = tmp_path_factory.mktemp("places")
    for processes in (2, 1, 4):
        side_by_side("placed_apart", processes, str(folder), *CHOSEN[processes])
    return {processes: json.loads((folder / f"{processes}.json").read_text()) for processes in CASES}


def alone(found: dict[int, dict[str, Any]], name: str) -> dict[str, Any]:
    """The single process that a case is compared with: of the same model and precision; FSDP has weights in bf16."""
    _, stage, kind = name.replace("node.", "").replace("node", "fp32").rsplit("-", 2)
    one: dict[str, Any] = found[1][f"alone-1-{min(1, int(stage)) if kind == 'bf16' else 0}-{kind}"]
    return one


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "name"), ALL)
def test_as_one_process(found: dict[int, dict[str, Any]], processes: int, name: str) -> None:
    """Losses, norms before clipping, a validation and the next step; initial weights and checkpoints to the byte."""
    one, expected = found[processes][name], alone(found, name)
    low = name.endswith("bf16")
    for (loss, norm), (wanted, wanted_norm) in zip(one["steps"], expected["steps"], strict=True):
        assert loss == pytest.approx(wanted, abs=5e-3 if low else 2e-5)
        assert norm == pytest.approx(wanted_norm, rel=0.05 if low else 2e-4)
    assert one["evaluated"] == pytest.approx(expected["evaluated"], rel=1e-3 if low else 2e-5)
    assert one["sum"] == pytest.approx(expected["sum"], rel=1e-3 if low else 1e-5)
    assert one["after"][0][0] == pytest.approx(expected["after"][0][0], abs=5e-3 if low else 2e-5)
    assert one["after"][0][0] < one["steps"][-1][0]  # one more step on the last batch
    assert one["skips"]
    assert one["initial"] == expected["initial"]
    assert one["neutral"]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "name"), ALL)
def test_resumed_is_the_same_to_the_byte(found: dict[int, dict[str, Any]], processes: int, name: str) -> None:
    one = found[processes][name]
    assert one["resumed"] == {"steps": one["steps"][2:], "weights": one["weights"]}


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "name"), ALL)
def test_a_process_holds_a_part(found: dict[int, dict[str, Any]], processes: int, name: str) -> None:
    """But for norms, a table that two stages have, and a mixture's experts, which only `expert` shares out."""
    degrees, stage, kind = name.rsplit("-", 2)
    share = found[processes][name]["held"] / alone(found, name)["held"]
    if degrees in ("sequence-2", "alone-1") and stage == "0":
        assert share == 1
    elif degrees == "tensor-2" and kind in ("mixtral", "olmoe"):
        assert 0.9 < share < 1
    else:
        assert share < 0.6


@pytest.mark.slow
def test_checkpoints_go_from_one_placement_to_another(found: dict[int, dict[str, Any]]) -> None:
    """Tensor 2 → one process; one process → pipeline 2; tensor 2 → 2 data × pipeline 2."""
    seen = [
        (found[1]["alone-1-0-fp32"], "from 2/tensor-2-0-fp32"),
        (found[4]["pipeline-2-0-fp32"], "from 1/alone-1-0-fp32"),
        (found[4]["pipeline-2-0-fp32"], "from 2/tensor-2-0-fp32"),
    ]
    for case, way in seen:
        for (loss, norm), (wanted, wanted_norm) in zip(
            case[way]["steps"], found[1]["alone-1-0-fp32"]["steps"][2:], strict=True
        ):
            assert loss == pytest.approx(wanted, abs=2e-5)
            assert norm == pytest.approx(wanted_norm, rel=2e-4)


@pytest.mark.slow
def test_the_program_trains_the_same_in_two_stages(start: Any, tmp_path: Path) -> None:
    """Losses and validations of a single process, those by an EMA of the weights."""
    changes = {"engine": "torch", "zero_stage": 0, "steps": 12, "validate_every": 6, "ema": 0.8}
    finish(start(tmp_path / "one", 1, changes))
    finish(start(tmp_path / "pipeline", 2, changes, "--parallel-pipeline", "2"))
    as_one(tmp_path, "pipeline")


@pytest.mark.long
def test_the_program_trains_the_same_wherever_it_is_placed_and_after_a_kill(start: Any, tmp_path: Path) -> None:
    changes = {"engine": "torch", "zero_stage": 0, "steps": 12, "validate_every": 6, "ema": 0.8}
    finish(start(tmp_path / "one", 1, changes))
    two = ("--parallel-pipeline", "2")  # of four processes: two read different data
    finish(start(tmp_path / "two", 4, changes, *two))
    finish(start(tmp_path / "tensor", 2, changes, "--parallel-tensor", "2"))
    finish(start(tmp_path / "sequence", 2, changes, "--parallel-sequence", "2"))
    process = start(tmp_path / "killed", 4, changes, *two)
    wait_for(process, tmp_path / "killed", "checkpoints/*/step-000005")
    kill(process)
    finish(start(tmp_path / "killed", 4, changes, *two))
    same(tmp_path / "two", tmp_path / "killed")
    as_one(tmp_path, "two", "tensor", "sequence")


def as_one(folder: Path, *names: str) -> None:
    """Runs in `folder` have the losses of the one there that is called `one`, and are the same run."""
    expected = rows(folder / "one/out/losses.jsonl")
    for placed_so in names:
        model = folder / placed_so / "out/model/config.json"
        assert model.read_bytes() == (folder / "one/out/model/config.json").read_bytes()
        for one, wanted in zip(rows(folder / placed_so / "out/losses.jsonl"), expected, strict=True):
            assert one == pytest.approx(wanted, abs=1e-4)
    folders = {path.name for path in folder.glob("*/checkpoints/[!.]*")}
    assert len(folders) == 1  # placement is no part of what a run is


def test_the_data_are_shared_out_by_what_the_other_degrees_leave() -> None:
    def ranks(processes: int, **degrees: int) -> list[int]:
        return [Place(rank, processes, Degrees(**degrees)).data_rank for rank in range(processes)]

    assert ranks(4) == [0, 1, 2, 3]
    assert ranks(4, tensor=2) == [0, 0, 1, 1]
    assert ranks(4, pipeline=2) == [0, 1, 0, 1]
    assert ranks(8, tensor=2, pipeline=2) == [0, 0, 1, 1, 0, 0, 1, 1]
    assert ranks(8, sequence=2, tensor=2) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert ranks(4, expert=2) == [0, 1, 2, 3]  # experts are shared out over these


@pytest.mark.parametrize(
    ("degrees", "processes", "changes", "said"),
    [
        (
            {"tensor": 2},
            2,
            {"engine": "deepspeed"},
            "pretrain.train.engine is deepspeed.*set pretrain.train.engine to torch",
        ),
        ({"tensor": 2}, 3, {}, "2 processes work on the same windows, and 3 .* is not a multiple of 2"),
        ({"tensor": 2, "pipeline": 2}, 2, {}, "tensor 2, pipeline 2: 4 processes"),
        ({"expert": 4}, 2, {}, "parallel.expert is 4.*which are 2 here; it must divide 2"),
        (
            {"expert": 2},
            2,
            {"zero_stage": 1},
            "parallel.expert is 2, and pretrain.train.zero_stage is 1.*set pretrain.train.zero_stage to 0",
        ),
        ({"tensor": 2}, 2, {"loss_chunk": 64}, "loss_chunk is 64: it needs the head"),
        ({"pipeline": 2}, 2, {"batch_ramp": [[0, 0.5]]}, "parallel.pipeline is 2, and pretrain.train.batch_ramp"),
        ({"sequence": 2}, 2, {"compile_layers": True}, "compile_layers is True: layers are compiled"),
        (
            {"tensor": 1, "sequence": 2},
            2,
            {"document_masking": True},
            "parallel.sequence is 2, and pretrain.train.document_masking is True",
        ),
        (
            {"tensor": 2},
            2,
            {"optimizer": "muon", "zero_stage": 1},
            "parallel.tensor is 2, pretrain.train.zero_stage 1, and .* muon.*set .*tensor to 1, .*zero_stage to 0, or",
        ),
    ],
)
def test_processes_and_settings_that_do_not_allow_it(
    degrees: dict[str, int], processes: int, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_degrees(Degrees(**degrees), processes, train_settings(**TORCH | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": "deepspeed", "zero_stage": 1}, "shard_over is node, and pretrain.train.engine is deepspeed"),
        ({}, "shard_over is node, and pretrain.train.zero_stage is 0.*or set pretrain.train.shard_over to all"),
        ({"zero_stage": 3, "parallel": {"tensor": 2}}, "shard_over is node, and pretrain.train.parallel is tensor 2"),
    ],
)
def test_what_nodes_cannot_have_whole(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        checks.check_shard_over(train_settings(**TORCH | {"shard_over": "node"} | changes))


def test_a_node_that_shares_out_alone_needs_the_memory_of_its_processes() -> None:
    shape = memory.Shape(parameters=50_000_000, layers=8, hidden=512, intermediate=2048, vocabulary=8192, context=512)

    def parts(processes: int, nodes: int, **keys: str) -> dict[str, int]:
        at = placed(processes=processes, nodes=nodes, sequences=64)
        return memory.memory_parts(shape, engine_settings(engine="torch", zero_stage=3, **keys), at, True)

    assert parts(16, 2, shard_over="node") == parts(8, 1) != parts(16, 2)


LLAMA = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4}


@pytest.mark.parametrize(
    ("degrees", "changes", "said"),
    [
        ({"tensor": 4}, {}, "parallel.tensor is 4, which must divide pretrain.train.model.heads = 4 and kv_heads = 2"),
        (
            {"tensor": 2, "sequence": 2},
            {},
            "parallel.tensor × pretrain.train.parallel.sequence is 4, which must divide",
        ),
        ({"tensor": 2}, {"model_type": "mamba"}, "parallel.tensor is 2: matrices are cut by .*and not in 'mamba'"),
        (
            {"sequence": 2},
            {"model_type": "mamba", "num_attention_heads": 0},
            "types llama, mistral.*and not in 'mamba'",
        ),
        ({"sequence": 2}, {"sliding_window": 8}, "a sliding window of 8 tokens"),
        (
            {"pipeline": 2},
            {"model_type": "mixtral", "router_aux_loss_coef": 0.01, "num_local_experts": 4},
            "the loss of the routers of type 'mixtral'",
        ),
        ({"pipeline": 2}, {"model_type": "gpt2"}, "stages are cut from types llama, .*and not from 'gpt2'"),
        ({"pipeline": 8}, {}, "there are only 4 layers"),
        ({"pipeline": 4}, {}, "a step has 2 micro-batches for each process.*lower pretrain.train.micro_batch"),
        ({"expert": 2}, {}, "types mixtral, olmoe, and not in 'llama'"),
        ({"expert": 2}, {"model_type": "olmoe", "num_experts": 3}, "it does not divide the 3 experts"),
    ],
)
def test_models_that_cannot_be_cut_so(degrees: dict[str, int], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_model(Degrees(**degrees), SimpleNamespace(**LLAMA | changes), 16, 2)


def test_a_context_that_does_not_divide() -> None:
    with pytest.raises(
        InputError, match=r"parallel.sequence is 2: it does not divide pretrain.train.model.context = 15"
    ):
        check_model(Degrees(sequence=2), SimpleNamespace(**LLAMA), 15, 2)


def test_the_plan_counts_the_part_of_a_process() -> None:
    """Matrices and activations over a tensor group, layers over a pipeline, activations over a sequence; and says what is refused."""
    model = {"hidden_size": 512, "layers": 8, "heads": 8, "kv_heads": 8, "context": 512, "intermediate_size": 2048}
    wanted = {
        "model": model,
        "steps": 10,
        "global_batch_tokens": 16_384,
        "engine": "torch",
        "zero_stage": 0,
        "processes": 4,
    }
    summary = plan.training_facts(train_settings(**wanted), 10**6, 8192)

    def of(**degrees: int) -> dict[str, int]:
        train = train_settings(**wanted, parallel=degrees)
        parts: dict[str, int] = resource_plan.plan_resources(summary, train, PlanSettings(gpu="h100"), has=80e9)[
            "memory"
        ]
        return parts

    whole, tensor, pipeline, sequence = of(), of(tensor=2), of(pipeline=2), of(sequence=2)
    assert tensor["weights"] == pytest.approx(whole["weights"] / 2, rel=0.01)
    assert whole["activations"] / 2 < tensor["activations"] < whole["activations"]
    table = 4 * 512 * 8192
    assert pipeline["weights"] == pytest.approx((whole["weights"] - table) / 2 + table, rel=0.01)
    assert sequence["weights"] == whole["weights"] and sequence["activations"] == whole["activations"] // 2
    with pytest.raises(InputError, match="not a multiple of 3"):
        of(tensor=3)


def test_tensor_parallelism_leaves_experts_whole() -> None:
    mixture = {
        "parameters": 90_000_000,
        "layers": 8,
        "hidden": 512,
        "intermediate": 4096,
        "vocabulary": 8192,
        "context": 512,
    }
    experts = memory.Shape(**mixture, experts=60_000_000)
    assert shape_per_process(experts, Degrees(tensor=4)).intermediate == 4096
    assert shape_per_process(memory.Shape(**mixture), Degrees(tensor=4)).intermediate == 1024


def test_a_change_that_is_proposed_leaves_whole_groups() -> None:
    """Of 8 processes in groups of 2 with 16 sequences in micro-batches of 4, 4 processes are possible, and 5 to 7 are not."""
    shape = memory.Shape(parameters=50_000_000, layers=8, hidden=512, intermediate=2048, vocabulary=8192, context=512)
    at = placed(micro_batch=4, processes=8, sequences=16, parallel={"tensor": 2})
    fixed = engine_settings(**TORCH, precision="fp32")
    now = 8 * sum(memory.memory_parts(shape, fixed, at, False).values())
    words = " or ".join(memory.changes_that_fit(shape, fixed, at, now - 1, 8, False))
    assert "lower pretrain.train.processes from 8 to 4" in words
