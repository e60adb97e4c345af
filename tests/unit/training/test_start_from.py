"""pretrain.train.start_from: a branch from a checkpoint, and training on from a model's weights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from crawl2llm.chain import config as configuration
from crawl2llm.chain.project import Project
from crawl2llm.core.atomic_folder import seal_folder
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.stages.evaluate.heldout_loss import measure_heldout
from crawl2llm.training import (
    architecture_match,
    checkpoint,
    checkpoint_integrity,
    initial,
    model,
    routers,
    start_from,
    weight_files,
)
from crawl2llm.training.engines.saved_parameters import saved_parameters
from crawl2llm.training.heldout import CARRY, choose_documents
from crawl2llm.workflow.project_checks import check_project
from tests.unit.stages.pretrain.conftest import TINY, build
from tests.unit.stages.pretrain.runs import finish, kill_after, rows, same
from tests.unit.training.typed import shape_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("branches")


@pytest.fixture
def whole(start: Any, folder: Path) -> Path:
    """An unbroken run of 24 steps on two processes, which kept its checkpoints."""
    made = folder / "whole"
    if not made.exists():
        finish(start(made, 2, None, "--keep-checkpoints", "9"))
    return made


def newest(folder: Path, step: int) -> str:
    (found,) = folder.glob(f"checkpoints/*/step-{step:06d}")
    return str(found)


@pytest.mark.slow  # starts trainings
def test_a_branch_with_the_same_settings_is_the_run_it_left(start: Any, whole: Path, folder: Path) -> None:
    """The optimizer's state, the data's position and the schedule go on: the same weights, and the losses from there."""
    branch = folder / "branch"
    errors = finish(start(branch, 2, {"start_from": newest(whole, 10)}))
    assert "starting from" in errors and "after step 10" in errors
    mine, other = (load_file(at / "out/model/model.safetensors") for at in (branch, whole))
    assert mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)
    expected = [row for row in rows(whole / "out/losses.jsonl") if row["step"] > 10]
    assert rows(branch / "out/losses.jsonl") == expected
    mine, other = (json.loads((at / "out/manifest.json").read_text())["summary"] for at in (branch, whole))
    assert any("after step 10" in note for note in mine["notes"])
    # What it has seen itself: the steps before are the other run's.
    for key in ("tokens", "epochs"):
        assert mine[key] == pytest.approx(other[key] * 14 / 24)


@pytest.mark.slow
def test_an_extension_on_another_number_of_processes_resumes(start: Any, whole: Path, folder: Path) -> None:
    """More steps than the run had, from its last checkpoint; a second start is done at once, without the first run."""
    made, source = folder / "longer", folder / "kept"
    shutil.copytree(newest(whole, 24), source)
    changes = {"start_from": str(source), "steps": 30, "schedule": "constant", "beta2": 0.5}
    assert "was saved by 2 processes" in finish(start(made, 1, changes))
    assert [row["step"] for row in rows(made / "out/losses.jsonl") if "loss" in row] == list(range(25, 31))
    assert not list(source.parent.glob(".*universal"))
    (made / "out/manifest.json").unlink()
    errors = finish(start(made, 1, changes))
    assert "resuming after step 30 of" in errors and "starting from" not in errors


@pytest.mark.slow
def test_a_ramp_of_its_own_begins_where_the_data_were_left(start: Any, folder: Path) -> None:
    """The branch's steps would have read other sequences up to here: none is read again, and none left out."""
    ramp = {"batch_ramp": [[0, 0.5], [0.5, 1]], "steps": 12}
    finish(start(folder / "ramp", 1, ramp, "--keep-checkpoints", "9", program="tests.unit.stages.pretrain.windows"))
    more = ramp | {"steps": 24, "start_from": newest(folder / "ramp", 10)}
    finish(start(folder / "ramp-longer", 1, more, program="tests.unit.stages.pretrain.windows"))
    first, then = (dict(rows(folder / name / "windows.jsonl")) for name in ("ramp", "ramp-longer"))
    seen = [window for step in range(1, 11) for window in first[step]]
    assert len(then[11]) == len(first[11]) // 2  # the longer ramp has small batches here
    assert then[11] == first[11][: len(then[11])]
    assert not set(seen) & {window for step in (11, 12) for window in then[step]}
    shown = [row for row in rows(folder / "ramp-longer/out/metrics.jsonl") if "tokens" in row]
    summary = json.loads((folder / "ramp-longer/out/manifest.json").read_text())["summary"]
    assert (shown[0]["step"], shown[0]["tokens"]) == (11, 128) and shown[-1]["tokens"] == summary["tokens"]


@pytest.mark.slow
def test_the_other_engine_goes_on(start: Any, whole: Path, folder: Path) -> None:
    """From a checkpoint of DeepSpeed, with the optimizer's state, under another stage: the same losses within rounding."""
    made = folder / "torch"
    finish(start(made, 2, {"start_from": newest(whole, 10), "engine": "torch", "zero_stage": 3}, "--keep-best", "true"))
    expected = [row for row in rows(whole / "out/losses.jsonl") if row["step"] > 10]
    for one, other in zip(rows(made / "out/losses.jsonl"), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    best = min((row for row in expected if "bits_per_byte" in row), key=lambda row: row["validation_loss"])
    assert newest(made, best["step"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "processes", "more"),
    [
        (0, 2, {}),
        (1, 2, {}),
        (2, 2, {"ema": 0.9}),
        (3, 2, {}),
        (3, 1, {}),
        (1, 2, {"precision": "bf16"}),
        (0, 2, {"optimizer": "muon", "learning_rate": 0.003}),
    ],
)
def test_deepspeed_goes_on_from_torch(
    start: Any, folder: Path, stage: int, processes: int, more: dict[str, Any]
) -> None:
    """With the optimizer's state, under any stage: the losses of the run that was left. Killed, it ends in the same bytes."""
    wanted = {"zero_stage": 0 if "optimizer" in more else 3, "engine": "torch", **more}
    name = "-".join(map(str, wanted.values()))
    if not (source := folder / f"torch-{name}").exists():
        finish(start(source, 2, wanted, "--keep-checkpoints", "9"))
    made, killed = folder / f"deepspeed-{stage}-{processes}-{name}", folder / f"killed-{stage}-{processes}-{name}"
    changes = {**more, "zero_stage": stage, "start_from": newest(source, 10)}
    errors = finish(start(made, processes, changes))
    assert "starting from" in errors and "after step 10" in errors
    expected = [row for row in rows(source / "out/losses.jsonl") if row["step"] > 10]
    for one, other in zip(rows(made / "out/losses.jsonl"), expected, strict=True):
        assert one == pytest.approx(other, abs=2e-3 if "precision" in more else 1e-4)
    kill_after(start, killed, 15, processes, changes)
    assert "resuming after step" in finish(start(killed, processes, changes))
    same(made, killed)


@pytest.mark.slow
def test_another_stage_goes_on(start: Any, whole: Path, folder: Path) -> None:
    """DeepSpeed's own checkpoint, of two processes under ZeRO 1, in one process under ZeRO 3."""
    made = folder / "stage"
    finish(start(made, 1, {"start_from": newest(whole, 10), "zero_stage": 3}))
    expected = [row for row in rows(whole / "out/losses.jsonl") if row["step"] > 10]
    for one, other in zip(rows(made / "out/losses.jsonl"), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["deepspeed", "torch"])
def test_another_optimizer_is_refused(start: Any, folder: Path, name: str) -> None:
    finish(start(folder / f"adamw-{name}", 1, {"zero_stage": 0, "engine": name}, "--keep-checkpoints", "9"))
    changes = {"zero_stage": 0, "optimizer": "muon", "start_from": newest(folder / f"adamw-{name}", 10)}
    errors = finish(start(folder / f"muon-{name}", 1, changes), 1)
    assert "has the state of another optimizer" in errors and "Traceback" not in errors


def test_from_a_model_it_begins_at_the_first_step(start: Any, whole: Path, folder: Path) -> None:
    made = folder / "again"
    finish(start(made, 1, {"start_from": str(whole / "out/model"), "learning_rate": 1e-5}))
    losses = [row["loss"] for row in rows(made / "out/losses.jsonl") if "loss" in row]
    before = [row["loss"] for row in rows(whole / "out/losses.jsonl") if "loss" in row]
    assert len(losses) == 24 and losses[0] < before[0] - 0.5
    assert max(losses) < sum(before[:4]) / 4


def test_a_checkpoint_that_does_not_suit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "step-000024"
    path.mkdir()
    facts = {"step": 24, "processes": 2, "zero_stage": 1, "settings": "x", "code": {}, "skipped": [], "changed": []}
    seal_folder(path, checkpoint.FACTS, facts, {})
    assert start_from.checkpoint_of(path, 25)
    with pytest.raises(InputError, match=r"after step 24, and this run ends at step 24: set more pretrain.train.steps"):
        start_from.checkpoint_of(path, 24)
    (path / checkpoint.FACTS).write_text("{}")
    with pytest.raises(InputError, match="the checkpoint is not complete"):
        start_from.checkpoint_of(path, 25)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heads": 2, "kv_heads": 1}, "num_attention_heads is 2 in its config.json, and 4 in this run"),
        ({"layers": 4}, "num_hidden_layers is 4 in its config.json, and 2 in this run"),
        (
            {"tie_embeddings": False},
            "tie_word_embeddings is False in its config.json, and True in this run: set pretrain.train.model.tie_embeddings to false",
        ),
        (
            {"type": "qwen3"},
            "model_type is 'qwen3' in its config.json, and 'llama' in this run: set pretrain.train.model.type",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    tmp_path: Path, tokenizer: Path, changes: dict[str, Any], said: str
) -> None:
    """By what lies in its model/, also where all tensors that this run has are in it with their shapes."""
    saved(tiny(**changes), tmp_path / "model", tokenizer)
    with pytest.raises(InputError, match=re.escape(said)):
        start_from.check_model(tiny(), tmp_path, tokenizer.parent / "tokenizer.json")


def test_a_checkpoint_of_another_vocabulary_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    folder, own = saved(tiny(), tmp_path / "model", tokenizer), tokenizer.parent / "tokenizer.json"
    start_from.check_model(tiny(context=64, overrides={"initializer_range": 0.5}), tmp_path, own)
    renumber(folder)
    with pytest.raises(InputError, match="its tokenizer has another vocabulary"):
        start_from.check_model(tiny(), tmp_path, own)


ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0}
OLD = {
    "rope_theta": 500000.0,
    "rope_scaling": None,
}  # as transformers wrote it before version 5, in the place of rope_parameters


def test_other_rope_parameters_are_refused_but_where_they_are_set(tmp_path: Path, tokenizer: Path) -> None:
    """Also of a model that is described as it was before transformers 5, which has other keys."""
    own, turned, file = tiny(), tiny(overrides={"rope_parameters": ROPE}), tokenizer.parent / "tokenizer.json"
    folder = saved(own, tmp_path / "model", tokenizer)
    start_from.check_model(own, tmp_path, file)
    said = (
        "rope_parameters.factor is None in its config.json, and 8.0 in this run; rope_parameters.rope_type is 'default' in its "
        "config.json, and 'linear' in this run: set pretrain.train.model.overrides.rope_parameters to {\"rope_theta\": 10000.0, "
        '"rope_type": "default"}'
    )
    with pytest.raises(InputError, match=re.escape(said)):
        start_from.check_model(turned, tmp_path, file)
    start_from.check_model(turned, tmp_path, file, ["rope_parameters"])
    assert architecture_match.rope_difference(turned.config, folder) and not architecture_match.rope_difference(
        own.config, folder
    )
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config | OLD))
    with pytest.raises(InputError, match=r"rope_theta is 500000\.0 in its config\.json, and 10000\.0 in this run"):
        start_from.find_stored_weights(own, folder, file)
    larger = tiny(overrides={"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})
    start_from.find_stored_weights(larger, folder, file)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", pytest.param("deepspeed", marks=pytest.mark.long)])
def test_a_branch_turns_by_the_angles_that_it_sets(
    start: Any, whole: Path, folder: Path, shards: list[Path], engine: str
) -> None:
    """At next to no learning rate: the weights of the checkpoint, and the loss that they have with these angles."""
    made, shape = folder / f"rope-{engine}", {**TINY["model"], "overrides": {"rope_parameters": ROPE}}
    changes = {"model": shape, "start_from": newest(whole, 20), "steps": 22, "learning_rate": 1e-9}
    errors = finish(start(made, 1, {**changes, "engine": engine, "zero_stage": 3}))
    assert "positions are others than the weights were trained with: rope_parameters.factor is None" in errors
    turned = AutoModelForCausalLM.from_pretrained(made / "out/model")
    assert turned.config.rope_parameters == ROPE
    plain = tiny()
    plain.load_state_dict(turned.state_dict())
    documents, _ = choose_documents(shards, 1500, 0)
    losses = [measure_heldout(each.eval(), 0, documents, 32, CARRY, 4)[0]["loss"] for each in (turned, plain)]
    summary = json.loads((made / "out/manifest.json").read_text())["summary"]
    assert summary["validation_loss"] == pytest.approx(losses[0], abs=2e-5) and abs(losses[0] - losses[1]) > 2e-4
    (before,) = [row for row in rows(whole / "out/losses.jsonl") if row["step"] == 24 and "validation_loss" in row]
    assert losses[1] == pytest.approx(before["validation_loss"], abs=0.1)


@pytest.mark.slow
def test_a_branch_of_another_model_does_not_start(start: Any, whole: Path, folder: Path) -> None:
    changes = {"model": {**TINY["model"], "heads": 8, "kv_heads": 4}, "start_from": newest(whole, 10)}
    errors = finish(start(folder / "heads", 2, changes), 1)
    assert "num_attention_heads is 4 in its config.json, and 8 in this run" in errors and "Traceback" not in errors


@pytest.fixture
def short(start: Any, folder: Path) -> Callable[[str, int], checkpoint.Checkpoint]:
    """The checkpoint of a run of five steps by an engine under a ZeRO stage."""

    def of(name: str, stage: int) -> checkpoint.Checkpoint:
        if not (made := folder / f"short-{name}-{stage}").exists():
            finish(start(made, 1, {"engine": name, "zero_stage": stage, "steps": 5}))
        found = checkpoint.read(Path(newest(made, 5)))
        assert found
        return found

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stage"), [("torch", 0), ("deepspeed", 0), ("deepspeed", 1), ("deepspeed", 3)])
def test_a_parameter_that_the_model_lacks_is_refused(short: Any, tmp_path: Path, name: str, stage: int) -> None:
    """Half of a checkpoint's layers would be left out in silence."""
    found, names = short(name, stage), [name for name, _ in tiny().named_parameters()]
    assert found.optimizer == "adamw"
    assert [name for name, _ in saved_parameters(found, names, tmp_path)] == names
    for other in (names[:-1], [*names, "other.weight"]):
        with pytest.raises(
            InputError, match=rf"is of another model: ({re.escape(names[-1])}|other\.weight) is a parameter"
        ):
            list(saved_parameters(found, other, tmp_path))


def flipped(file: Path) -> Path:
    """A file of safetensors with other bytes where its header begins."""
    held = bytearray(file.read_bytes())
    held[8:12] = bytes(255 - value for value in held[8:12])
    file.write_bytes(held)
    return file


def test_of_a_run_s_own_checkpoint_the_one_before_helps(tmp_path: Path) -> None:
    path = tmp_path / "step-000010"
    path.mkdir()
    save_file({"weight": torch.zeros(8)}, path / "a.safetensors")
    with pytest.raises(RuntimeError, match="not of a file"), checkpoint_integrity.explain_damage(path, tmp_path):
        raise RuntimeError("not of a file")
    flipped(path / "a.safetensors")
    said = r"a\.safetensors cannot be read .*: remove the folder .*step-000010 to resume"
    with pytest.raises(InputError, match=said), checkpoint_integrity.explain_damage(path, tmp_path):
        raise RuntimeError


def renumber(folder: Path) -> None:
    """Give the tokens of the tokenizer in a model's folder each other's numbers."""
    text = json.loads((folder / "tokenizer.json").read_text())
    text["model"]["vocab"] = dict(zip(text["model"]["vocab"], reversed(text["model"]["vocab"].values()), strict=True))
    (folder / "tokenizer.json").write_text(json.dumps(text))


def tiny(**changes: Any) -> Any:
    settings = {"type": "llama", "tie_embeddings": True, "overrides": {}, **TINY["model"], **changes}
    return build(model.build_config(shape_settings(**settings), 300, 0), 1)


def load_weights(made: Any, path: Path, tokenizer: Path) -> None:
    """As an engine does: what is not in the files has the value of a fresh model."""
    stored = start_from.find_stored_weights(made, path, tokenizer)
    fresh = made.named_parameters
    with torch.no_grad():
        for name, value in start_from.with_stored_weights(stored, lambda: fresh()):
            dict(fresh())[name].copy_(value)


def saved(made: Any, folder: Path, tokenizer: Path) -> Path:
    """A model's folder, as pretrain.train writes it."""
    made.save_pretrained(folder)
    shutil.copy(tokenizer.parent / "tokenizer.json", folder)
    return folder


def test_weights_are_those_of_the_file(tmp_path: Path, tokenizer: Path) -> None:
    source, target = tiny(), tiny(context=64)
    with torch.no_grad():
        for value in source.parameters():
            value.add_(1)
    load_weights(target, saved(source, tmp_path, tokenizer), tokenizer.parent / "tokenizer.json")
    held = dict(source.named_parameters())
    assert all(torch.equal(value, held[name]) for name, value in target.named_parameters())


MIXTURES = {
    "mixtral": {"num_local_experts": 12, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 12, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "jamba": {"num_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
}


def exported(folder: Path, tokenizer: Path, **changes: Any) -> tuple[Path, Any]:
    """A model with random weights as pretrain.train writes it, and the model."""
    made = tiny(**changes)
    for number, bias in enumerate(routers.selection_biases(made).values()):
        bias.add_(number + 1)
    held = {name: value.detach().clone() for name, value in routers.trained_values(made).items()}
    model.export(held, made.config, "fp32", [tokenizer.parent / "tokenizer.json"], folder)
    return folder, made


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [*MIXTURES, "gpt_neox", "llama"])
def test_what_an_architecture_saves_otherwise_is_read_back(
    tmp_path: Path, tokenizer: Path, kind: str, tied: bool
) -> None:
    """Experts that are saved apart and packed here, the tenth after the ninth, and a head under another name."""
    changes = {"type": kind, "tie_embeddings": tied, "overrides": MIXTURES.get(kind, {})}
    folder, source = exported(
        tmp_path / "model", tokenizer, **changes, **({"kv_heads": None} if kind == "gpt_neox" else {})
    )
    # Without values, as the run has it; and each value is made when it is asked for, so that a process holds one at a time.
    stored = start_from.find_stored_weights(
        initial.empty_model(source.config), folder, tokenizer.parent / "tokenizer.json"
    )
    read = start_from.with_stored_weights(stored, lambda: initial.random_weights(source.config, 7))
    own = routers.trained_values(source)
    found = {name: value for name, value in read if name in own}
    assert found.keys() == own.keys()
    assert all(torch.equal(value, own[name]) and value.dtype == torch.float32 for name, value in found.items())


def test_only_the_tensors_of_a_parameter_are_read_for_it(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no process of a run whose weights are shared out holds the model whole; one name, one tensor."""
    for kind, most in (("llama", 1), ("mixtral", 24)):
        folder, source = exported(tmp_path / kind, tokenizer, type=kind, overrides=MIXTURES.get(kind, {}))
        own = initial.empty_model(source.config)
        held = start_from.find_stored_weights(own, folder, tokenizer.parent / "tokenizer.json")
        assert max(len(parts) for parts in held.parts.values()) == most
        asked: list[int] = []
        was = weight_files.convert_tensors

        def counted(made: Any, parts: Any, asked: list[int] = asked, was: Any = was) -> Any:
            asked.append(sum(part.numel() for part in parts.values()))
            return was(made, parts)

        monkeypatch.setattr(weight_files, "convert_tensors", counted)
        dict(start_from.with_stored_weights(held, lambda own=own: own.named_parameters()))
        monkeypatch.undo()
        assert max(asked, default=0) == (0 if kind == "llama" else max(p.numel() for p in own.parameters()))


def test_a_missing_expert_is_named(tmp_path: Path, tokenizer: Path) -> None:
    folder, source = exported(tmp_path / "model", tokenizer, type="mixtral", overrides=MIXTURES["mixtral"])
    held = load_file(folder / "model.safetensors")
    del held["model.layers.1.block_sparse_moe.experts.11.w2.weight"]
    save_file(held, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"the model there has no model\.layers\.1\.block_sparse_moe\.experts\.11\.w2"):
        load_weights(source, folder, tokenizer.parent / "tokenizer.json")


def test_a_model_s_damaged_file_is_named(tmp_path: Path, tokenizer: Path) -> None:
    folder, source = exported(tmp_path / "model", tokenizer)
    flipped(folder / "model.safetensors")
    with pytest.raises(InputError, match=r"model': model\.safetensors cannot be read"):
        load_weights(source, folder, tokenizer.parent / "tokenizer.json")


@pytest.mark.slow
def test_a_mixture_of_experts_is_a_start(start: Any, folder: Path) -> None:
    """Of a model that a run here made; each process has a part of it from the beginning."""
    shape = {**TINY["model"], "type": "mixtral", "overrides": {**MIXTURES["mixtral"], "num_local_experts": 4}}
    more = {"engine": "torch", "zero_stage": 3, "model": shape}
    finish(start(folder / "mixture", 1, more))
    finish(start(folder / "mixture-on", 2, {**more, "start_from": str(folder / "mixture/out/model")}))
    before, after = (
        [row["loss"] for row in rows(folder / name / "out/losses.jsonl") if "loss" in row]
        for name in ("mixture", "mixture-on")
    )
    assert after[0] < before[0] - 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 64, "overrides": {"head_dim": 8}}, "hidden_size is 64 in its config.json, and 32 in this run"),
        ({"layers": 4}, "num_hidden_layers is 4 in its config.json, and 2 in this run"),
        ({"heads": 2, "kv_heads": 1}, "num_attention_heads is 2 in its config.json, and 4 in this run"),
        ({"tie_embeddings": False}, "tie_word_embeddings is False in its config.json, and True in this run"),
        ({"overrides": {"rms_norm_eps": 0.1}}, "rms_norm_eps is 0.1 in its config.json, and 1e-06 in this run"),
        ({"type": "qwen2"}, "in its config.json"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, tokenizer: Path, changes: dict[str, Any], said: str) -> None:
    """Also one whose tensors have the same shapes: its weights would compute something else here."""
    folder = saved(tiny(**changes), tmp_path, tokenizer)
    with pytest.raises(InputError, match=re.escape(said)):
        load_weights(tiny(), folder, tokenizer.parent / "tokenizer.json")


def test_another_vocabulary_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    folder = saved(tiny(), tmp_path, tokenizer)
    renumber(folder)
    with pytest.raises(InputError, match="its tokenizer has another vocabulary"):
        load_weights(tiny(), folder, tokenizer.parent / "tokenizer.json")


def test_tensors_that_the_model_lacks_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    folder = saved(tiny(), tmp_path, tokenizer)
    save_file({"other.weight": torch.zeros(1)}, folder / "more.safetensors")
    with pytest.raises(InputError, match=r"the model here has no other\.weight, which is in more\.safetensors"):
        load_weights(tiny(), folder, tokenizer.parent / "tokenizer.json")


def test_a_folder_of_neither(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder with neither \*\.safetensors nor checkpoint\.json"):
        load_weights(tiny(), tmp_path, tmp_path)
    with pytest.raises(InputError, match="no folder of a model or of a checkpoint"):
        start_from.checkpoint_of(tmp_path / "nothing", 10)


def test_a_path_that_is_not_there_is_refused_by_the_plan(tmp_path: Path) -> None:
    from crawl2llm.chain import config
    from crawl2llm.chain.fingerprint import file_hashes

    complete = config.validate({"pretrain": {"train": {"start_from": str(tmp_path / "nothing")}}})
    with pytest.raises(ConfigError, match=r"pretrain\.train\.start_from is .*nothing': No such file"):
        file_hashes("pretrain.train", complete)


def test_other_content_at_the_same_path_has_checkpoints_of_its_own(tmp_path: Path) -> None:
    from crawl2llm.core.checkpoint_folders import training_folder

    assert len({training_folder(tmp_path, {}, {}, files) for files in (None, {"a": "1"}, {"a": "2"})}) == 3
    assert training_folder(tmp_path, {}, {}, {}) == training_folder(tmp_path, {}, {})


@pytest.mark.parametrize("given", ["results/main/pretrain/train/model", "results/../results/main/pretrain/train"])
def test_its_own_result_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """It would never come to rest: each run would begin with what the one before it made."""
    (tmp_path / given).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    config = configuration.validate({"pretrain": {"train": {"start_from": given}}})
    with pytest.raises(ConfigError, match=r"start_from is .*, the result that this run would replace"):
        check_project(Project(config))
