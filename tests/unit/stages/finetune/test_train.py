"""finetune.train on real pairs and a small random model: as a plain loop by any engine; killed and resumed; what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file

from crawl2llm.chain import command_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, checksum
from crawl2llm.core.root import ROOT
from crawl2llm.stages.finetune import pairs
from crawl2llm.stages.finetune.settings import TrainSettings
from crawl2llm.training import adapters, checkpoint, export, listing, memory
from crawl2llm.training.model_loading import load_model
from crawl2llm.training.pair_batches import Batches, tokenized_pairs
from crawl2llm.training.pair_run import SECTION, check_finetuning
from crawl2llm.training.processes import RESUBMIT
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.template import read_pairs
from tests.unit.stages.finetune import tiny
from tests.unit.stages.finetune.words import MORE
from tests.unit.stages.pretrain import copies
from tests.unit.stages.pretrain.copies import finished
from tests.unit.training.typed import placed, tuning_settings

pytestmark = pytest.mark.slow  # starts trainings

RATE = 3e-3
CONFIG = {
    "max_length": tiny.CONTEXT,
    "epochs": 1,
    "batch_size": 16,
    "micro_batch": 16,
    "learning_rate": RATE,
    "schedule": "linear",
    "warmup": 0,
    "threads": 1,
}
STEPS = 19  # of 300 pairs: the last has 12
CASES = [f"{engine}-{stage}" for engine in ("deepspeed", "torch") for stage in (0, 3)]
SMALLER = [f"{case}-3" for case in CASES[1:3]]  # micro-batches
PACKED = ["torch-3-3-packed", "deepspeed-0-16-packed"]
ADAPTED = ["torch-0-16-lora", "torch-3-3-lora", "torch-1-16-20-lora", "torch-0-16-lora-some", "torch-0-16-qlora"]
CHUNKED = ["deepspeed-3-3-7", "torch-1-16-20"]  # and tokens of loss_chunk, of which a micro-batch has more


def arguments(base: Path, pairs: Path, out: Path, **changes: object) -> list[str]:
    config = tiny.config("finetune.train", **{**CONFIG, **changes})
    given = ["--model", str(base), "--pairs", str(pairs), "--manifest", str(out / "sft.manifest.json")]
    return ["--config", config, *given, "--checkpoints", str(out / "checkpoints")]


def launched(
    options: list[str], processes: int = 1, program: str = "crawl2llm.stages.finetune.train", **variables: str
) -> copies.Launched:
    """The launcher with so many processes, in a process group of its own."""
    folder = Path(options[options.index("--checkpoints") + 1]).parent
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return copies.Launched(["--processes", str(processes), program, *options], folder, environment)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "sft/losses.jsonl").read_text().splitlines()]


def heldout_steps(out: Path) -> list[int]:
    """The steps that metrics.jsonl has a held-out loss of."""
    shown = [json.loads(line) for line in (out / "sft/metrics.jsonl").read_text().splitlines()]
    return [row["step"] for row in shown if "heldout_loss" in row]


def same(one: Path, other: Path) -> None:
    """Manifest, losses and weights are equal byte for byte."""
    for name in ("sft.manifest.json", "sft/losses.jsonl", "sft/model/model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def place(options: list[str]) -> Path:
    """The folder of checkpoints of a program with these options."""
    made = command_line.step_parser("finetune.train", "", "")
    for name in ("model", "pairs", "checkpoints"):
        made.add_argument(f"--{name}", type=Path)
    args, _ = made.parse_known_args(options)
    return command_line.checkpoint_folder(args)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, base_model: Path, pairs_manifest: Path) -> dict[int, Path]:
    """The folder of what each case left, a folder of its name, by the number of processes."""
    folders = {}
    for processes in (1, 2):
        out = tmp_path_factory.mktemp(f"tuned-{processes}")
        cases = [*CASES, *SMALLER, *CHUNKED, *PACKED, *ADAPTED]
        if processes == 2:
            cases += ["of:torch-0", "torch-0"]
        said = finished(
            launched(
                arguments(base_model, pairs_manifest, out),
                processes,
                "tests.unit.stages.finetune.poisoned",
                CASES=" ".join(cases),
            )
        )
        assert ("nothing to do: settings, code and input are as before" in said) == (processes == 2)
        folders[processes] = out
    return folders


@pytest.fixture(scope="module")
def plain(base_model: Path, pairs_manifest: Path) -> dict[str, Any]:
    """A loop without any engine: pair after pair without padding, torch's AdamW."""
    return loop(*load_model(base_model.parent / "model"), pairs_manifest, RATE)


def loop(model: Any, tokenizer: Any, pairs_manifest: Path, rate: float) -> dict[str, Any]:
    """What a plain loop finds that trains what of a model wants a gradient."""
    settings = TrainSettings.model_validate(CONFIG)
    batches = Batches(pairs_manifest, tokenizer, settings, 1)
    own = [parameter for parameter in model.parameters() if parameter.requires_grad]
    moves = torch.optim.AdamW(own, lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

    def total(some: list[dict[str, Any]], learns: bool) -> float:
        """The mean loss over the answers' tokens of pairs, and its gradient."""
        made = list(tokenized_pairs(some, batches.template, tokenizer, tiny.CONTEXT))
        counted, loss = sum(scored for _, scored, _ in made), 0.0
        for ids, scored, _ in made:
            with torch.set_grad_enabled(learns):
                logits = model(input_ids=torch.from_numpy(ids[None])).logits[0, -scored - 1 : -1]
                part = torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[-scored:]), reduction="sum")
            if learns:
                (part / counted).backward()
            loss += float(part.detach())
        return loss / counted

    heldout = fit_pairs(*read_pairs(pairs_manifest, "heldout"), tokenizer, tiny.CONTEXT).rows
    before, losses = total(heldout, False), []
    for step in range(1, batches.steps + 1):
        moves.param_groups[0]["lr"] = rate * (1 - step / (STEPS + 1))
        losses.append(total([batches.rows[number] for number in batches.step_indices(step)], True))
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        moves.step()
        moves.zero_grad()
    return {"losses": losses, "before": before, "after": total(heldout, False)}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("case", [*CASES, *SMALLER, *CHUNKED, *PACKED])
def test_as_a_plain_loop(found: dict[int, Path], plain: dict[str, Any], case: str, processes: int) -> None:
    out = found[processes] / case
    made = rows(out)
    assert [row["step"] for row in made] == list(range(1, STEPS + 1))
    assert [row["loss"] for row in made] == pytest.approx(plain["losses"], abs=1e-5)
    summary = Manifest.read(out / "sft.manifest.json").summary
    assert summary["heldout_loss_before"] == pytest.approx(plain["before"], abs=1e-5)
    assert summary["heldout_loss_after"] == pytest.approx(plain["after"], abs=1e-4)


def test_it_lowers_the_heldout_loss_and_leaves_a_model(found: dict[int, Path], base_model: Path) -> None:
    out = found[2] / CASES[1]
    manifest = Manifest.read(out / "sft.manifest.json")
    summary = manifest.summary
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"] - 0.5
    assert summary["steps"] == STEPS and summary["heldout_tokens"] > 100 and summary["trained"] is True
    assert (summary["loss_first"], summary["loss_last"]) == (rows(out)[0]["loss"], rows(out)[-1]["loss"])
    assert not [name for name in manifest.files if name.endswith((".bin", ".pt", ".pth"))]
    model, tokenizer = load_model(out / "sft/model")
    assert tokenizer.eos_token_id == 0 and model.config.use_cache
    assert sum(p.numel() for p in model.parameters()) == summary["parameters"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (out / "sft/model" / name).read_bytes() == (base_model.parent / "model" / name).read_bytes()
    assert not list((found[1] / "checkpoints").glob("[!.]*")), "no checkpoint and no log is left"
    shown = [json.loads(line) for line in (out / "sft/metrics.jsonl").read_text().splitlines()]
    assert [row["heldout_loss"] for row in shown if "heldout_loss" in row] == pytest.approx(
        [summary["heldout_loss_before"], summary["heldout_loss_after"]], abs=1e-6
    )
    record = json.loads((out / "sft.run.json").read_text())
    assert (record["processes"], record["nodes"], record["device"]) == (2, 1, "cpu")


@pytest.fixture(scope="module")
def adapted(base_model: Path, pairs_manifest: Path) -> dict[str, dict[str, Any]]:
    """The same loop over PEFT's own model: of all linear layers, of two kinds (`some`), with those adapted in four bits (`qlora`)."""
    found = {}
    for name in ("lora", "some", "qlora"):
        model, tokenizer = load_model(base_model.parent / "model")
        settings = {
            **MORE["qlora" if name == "qlora" else "lora"],
            "adapter_targets": MORE["some"]["adapter_targets"] if name == "some" else [],
        }
        adapter = tuning_settings(**settings)
        if name == "qlora":
            rounded(model)
        made = get_peft_model(model, adapters.lora_config(adapter))
        begun = adapters.empty_model(model.config, adapter, "here")
        with torch.no_grad():
            for key, value in adapters.weights_with_adapter(begun, iter(()), 0):
                made.base_model.model.get_parameter(key).copy_(value)
        found[name] = loop(made, tokenizer, pairs_manifest, settings["learning_rate"])
    return found


@torch.no_grad()
def rounded(model: Any) -> None:
    """Give the linear layers, but for the head, what four bits keep of their weights."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            packed, state = quantize_4bit(module.weight.data, quant_type="nf4", compress_statistics=True)
            module.weight.copy_(dequantize_4bit(packed, state))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("case", ADAPTED)
def test_an_adapter_as_a_plain_loop_over_pefts_model(
    found: dict[int, Path], adapted: dict[str, dict[str, Any]], base_model: Path, case: str, processes: int
) -> None:
    out, plain = found[processes] / case, adapted[case.rpartition("-")[2]]
    # Several times the rate of the other trainings: what sums in another order differ by grows from step to step, and not on each
    # processor alike.
    losses = [row["loss"] for row in rows(out)]
    assert losses[:8] == pytest.approx(plain["losses"][:8], abs=1e-4)
    assert losses == pytest.approx(plain["losses"], abs=3e-2)
    manifest = Manifest.read(out / "sft.manifest.json")
    assert manifest.summary["heldout_loss_after"] == pytest.approx(plain["after"], abs=1e-3)
    assert manifest.summary["heldout_loss_after"] < manifest.summary["heldout_loss_before"] - 0.2
    assert manifest.summary["trained_parameters"] < manifest.summary["parameters"] / 2
    assert {"sft/adapter/adapter_config.json", "sft/adapter/adapter_model.safetensors"} <= manifest.files.keys()

    (model, _), (base, tokenizer) = load_model(out / "sft/model"), load_model(base_model.parent / "model")
    ids = torch.tensor([tokenizer("Question: What does it do?")["input_ids"]])
    before = base(input_ids=ids).logits.detach()
    merged = model(input_ids=ids).logits
    if case.endswith("qlora"):
        rounded(base)
    beside = PeftModel.from_pretrained(base, str(out / "sft/adapter")).eval()(input_ids=ids).logits
    assert torch.allclose(merged, beside, atol=1e-4) and not torch.allclose(merged, before, atol=1e-2)


def test_a_model_is_made_from_a_fine_tuned_one_too(found: dict[int, Path]) -> None:
    """Its files are those of its own name, and its manifest says which model it is made from."""
    manifest = Manifest.read(found[2] / "of-torch-0/sft.manifest.json")
    assert "finetune.train sft" in manifest.inputs and "pretrain.train" not in manifest.inputs
    before = Manifest.read(found[2] / "torch-0/sft.manifest.json").summary["heldout_loss_after"]
    assert manifest.summary["heldout_loss_before"] == pytest.approx(before, abs=2e-6)


def test_a_mixture_of_experts_is_fine_tuned(base_model: Path, pairs_manifest: Path, tmp_path: Path) -> None:
    """With the weights that from_pretrained reads from its files, where each expert is apart."""
    base, folder = tiny.write_mixture(tmp_path / "base", base_model), tmp_path / "base/model"
    said = arguments(base, pairs_manifest, tmp_path / "out", engine="torch", zero_stage=3)
    finished(launched(said, 2))
    model, tokenizer = load_model(folder)
    pairs_, template = read_pairs(pairs_manifest, "heldout")
    nats, counted = 0.0, 0
    for ids, scored, _ in tokenized_pairs(
        fit_pairs(pairs_, template, tokenizer, tiny.CONTEXT).rows, template, tokenizer, tiny.CONTEXT
    ):
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(ids[None])).logits[0, -scored - 1 : -1]
        nats += float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[-scored:]), reduction="sum"))
        counted += scored
    summary = Manifest.read(tmp_path / "out/sft.manifest.json").summary
    assert summary["heldout_loss_before"] == pytest.approx(nats / counted, abs=1e-5)
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"] - 0.5


def test_two_models_of_the_same_settings_have_checkpoints_of_their_own(
    base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    options = arguments(base_model, pairs_manifest, tmp_path)
    assert place(options) != place([word.replace("sft.manifest", "other.manifest") for word in options])


def stopped(process: copies.Launched, folder: Path, number: signal.Signals) -> str:
    """What a training said that got a signal, the launcher and all, when its first checkpoint was there."""
    end = time.monotonic() + 900
    while not list(folder.glob(f"step-*/{checkpoint.FACTS}")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()[1]
        time.sleep(0.002)
    if number == signal.SIGKILL:
        os.killpg(process.pid, number)
        process.communicate()
        return ""
    process.send_signal(number)
    return finished(process, RESUBMIT)


@pytest.mark.parametrize(
    "case", ["deepspeed-3", *(pytest.param(case, marks=pytest.mark.long) for case in ("deepspeed-0", "torch-3"))]
)
def test_killed_and_resumed_gives_the_same_bytes(
    found: dict[int, Path], base_model: Path, pairs_manifest: Path, tmp_path: Path, case: str
) -> None:
    engine, stage = case.split("-")
    options = arguments(base_model, pairs_manifest, tmp_path, engine=engine, zero_stage=int(stage))
    options += ["--checkpoint-every", "4"]
    folder = place(options)
    stopped(launched(options, 2), folder, signal.SIGKILL)
    assert not (tmp_path / "sft.manifest.json").exists()
    (folder / ".step-000008.partial").mkdir(exist_ok=True)  # as a kill in the middle of a save leaves one
    (folder / "damaged-step-000002").mkdir()  # as one that could not be read
    newest = checkpoint.complete_checkpoints(folder)[-1].step
    assert newest < STEPS
    (row,) = [row for row in listing.checkpoint_rows(folder.parent) if row[0] == str(folder / f"step-{newest:06d}")]
    assert row[1:3] == ("sft", str(newest))
    assert export.main([row[0], str(tmp_path / "exported")]) == 0
    exported, source = (
        load_file(at / "model.safetensors") for at in (tmp_path / "exported", base_model.parent / "model")
    )
    assert exported.keys() == source.keys() and any(not exported[name].equal(source[name]) for name in source)
    said = finished(launched(options, 2))
    assert f"resuming after step {newest} of" in said and "held-out loss before" not in said
    same(tmp_path, found[2] / case)
    assert heldout_steps(tmp_path) == [0, STEPS]
    assert not folder.exists()


@pytest.mark.long
def test_an_adapter_that_was_killed_gives_the_same_bytes(
    found: dict[int, Path], base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    """Its checkpoints hold the adapter alone, which says so where a model is asked for; a layer that is not there is named."""
    settings = {**MORE["lora"], "engine": "torch", "zero_stage": 3, "micro_batch": 3}
    options = [*arguments(base_model, pairs_manifest, tmp_path, **settings), "--checkpoint-every", "4"]
    folder = place(options)
    stopped(launched(options, 2), folder, signal.SIGKILL)
    newest = checkpoint.complete_checkpoints(folder)[-1].path
    assert (
        sum(file.stat().st_size for file in newest.glob("*.safetensors"))
        < (base_model.parent / "model/model.safetensors").stat().st_size
    )
    with pytest.raises(InputError, match="holds an adapter's matrices alone: resume its run"):
        export.export_checkpoint(newest, tmp_path / "exported", None)
    assert "resuming after step" in finished(launched(options, 2))
    for name in ("sft.manifest.json", "sft/losses.jsonl", "sft/adapter/adapter_model.safetensors"):
        assert (tmp_path / name).read_bytes() == (found[2] / "torch-3-3-lora" / name).read_bytes(), name
    wrong = arguments(base_model, pairs_manifest, tmp_path / "no", **settings, adapter_targets=["qproj"])
    assert "adapter_targets: the architecture 'llama' has no linear layer 'qproj'; it has" in finished(
        launched(wrong), 1
    )


def test_the_same_bytes_where_checkpoints_are_written_beside(
    found: dict[int, Path], base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    """On a slow disk, killed and resumed; steps go on while one is written, and the last is whole before the model is."""
    options = arguments(base_model, pairs_manifest, tmp_path, engine="torch", zero_stage=3)
    options += ["--checkpoint-every", "4", "--async-checkpoints", "true"]
    folder, program = place(options), ("tests.unit.stages.finetune.poisoned",)
    stopped(launched(options, 2, *program, DELAY="0.2"), folder, signal.SIGKILL)
    newest = checkpoint.complete_checkpoints(folder)[-1].step
    assert f"resuming after step {newest} of" in finished(launched(options, 2, *program, DELAY="0.2"))
    same(tmp_path, found[2] / "torch-3")
    seen = [json.loads(line)[1] for line in (tmp_path / "times-0.jsonl").read_text().splitlines()]
    assert any(one.startswith("writes") and other.startswith("step") for one, other in pairwise(seen))
    assert seen[-1] == f"wrote .step-{STEPS:06d}.partial" and not folder.exists()


def test_killed_before_its_manifest_it_trains_no_step_again(
    found: dict[int, Path], base_model: Path, pairs_manifest: Path, tmp_path: Path
) -> None:
    options = [
        *arguments(base_model, pairs_manifest, tmp_path, engine="torch", zero_stage=0),
        "--checkpoint-every",
        "8",
    ]
    folder = place(options)
    finished(launched(options, 2, "tests.unit.stages.finetune.poisoned", KILLED="1"), 1)
    assert not (tmp_path / "sft.manifest.json").exists() and checkpoint.complete_checkpoints(folder)[-1].step == STEPS
    said = finished(launched(options, 2))
    assert f"resuming after step {STEPS} of" in said and "held-out loss" not in said
    same(tmp_path, found[2] / "torch-0")
    assert heldout_steps(tmp_path) == [0, STEPS] and not folder.exists()


@pytest.mark.long
@pytest.mark.parametrize("case", ["deepspeed-3", "torch-3"])
def test_another_number_of_processes_goes_on_with_the_same_batches(
    plain: dict[str, Any], base_model: Path, pairs_manifest: Path, tmp_path: Path, case: str
) -> None:
    engine, stage = case.split("-")
    options = arguments(base_model, pairs_manifest, tmp_path, engine=engine, zero_stage=int(stage))
    options += ["--checkpoint-every", "4"]
    stopped(launched(options, 2), place(options), signal.SIGKILL)
    assert "resuming after step" in finished(launched(options, 1))
    assert [row["loss"] for row in rows(tmp_path)] == pytest.approx(plain["losses"], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_warned_and_resumed_gives_the_same_bytes(
    found: dict[int, Path], base_model: Path, pairs_manifest: Path, tmp_path: Path, processes: int
) -> None:
    """It ends with status 85 after a checkpoint of the very step, and its log is continued."""
    options = arguments(base_model, pairs_manifest, tmp_path, engine="torch", zero_stage=0)
    options += ["--checkpoint-every", "4", "--log", str(tmp_path / "log")]
    folder = place(options)
    stopped(launched(options, processes), folder, signal.SIGUSR1)
    log = (tmp_path / "log").read_text()
    found_step = re.search(r"stopped by a signal after step (\d+);", log)
    assert found_step and checkpoint.complete_checkpoints(folder)[-1].step == int(found_step[1])
    finished(launched(options, processes))
    assert (tmp_path / "log").read_text().startswith(log)
    assert f"resuming after step {found_step[1]} of {STEPS}, checkpoint of" in (tmp_path / "log").read_text()
    same(tmp_path, found[processes] / "torch-0")


@pytest.mark.long
def test_a_gradient_that_is_not_finite_is_skipped(base_model: Path, pairs_manifest: Path, tmp_path: Path) -> None:
    """Of one process of two: the steps with it are skipped and their pairs are named; their number is bounded, over a resumption too."""
    options = [*arguments(base_model, pairs_manifest, tmp_path), "--checkpoint-every", "8", "--max-skipped-steps"]
    program = "tests.unit.stages.finetune.poisoned"
    said = finished(launched([*options, "1"], 2, program, POISON="3,10"), 1)
    assert "not finite in 2 steps, the last is step 10; finetune.train.max_skipped_steps is 1" in said
    assert "Traceback" not in said and said.count("not finite in 2 steps") == 1
    said = finished(
        launched([*options, "3"], 2, program, POISON="loss:10,19")
    )  # resumes from step 8, and knows of step 3
    assert "resuming after step 8" in said
    assert "step 10: the loss is not finite, its update is skipped (2 of at most 3); its 16 pairs" in said
    manifest = Manifest.read(tmp_path / "sft.manifest.json")
    assert manifest.summary["skipped_steps"] == [3, 10, 19] and "3 of 19 steps" in manifest.summary["notes"][0]
    assert manifest.summary["heldout_loss_after"] < manifest.summary["heldout_loss_before"] - 0.5
    made = rows(tmp_path)
    assert [row["step"] for row in made] == list(range(1, STEPS + 1))
    known = {json.loads(line)["id"] for line in (pairs_manifest.parent / "train.jsonl").read_text().splitlines()}
    for step, what, number in ((3, "gradient", 16), (10, "loss", 16), (19, "loss", 12)):
        row = made[step - 1]
        assert "loss" not in row and row["skipped"] == what
        assert len(row["pairs"]) == number and set(row["pairs"]) <= known


def derived(corpus: list[Path], folder: Path, **settings: object) -> Path:
    """The manifest of finetune.pairs under these settings."""
    out = folder / "pairs" / "manifest.json"
    config = tiny.config("finetune.pairs", **settings)
    assert pairs.main(["--config", config, "--corpus", *map(str, corpus), "--manifest", str(out)]) == 0
    return out


def test_without_enough_pairs_the_base_model_is_passed_on(base_model: Path, corpus: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    finished(launched(arguments(base_model, derived(corpus, tmp_path, min_train=50_000), out), 2))
    manifest = Manifest.read(out / "sft.manifest.json")
    assert manifest.summary["trained"] is False and manifest.summary["steps"] == 0
    assert manifest.summary["parameters"] == sum(
        p.numel() for p in load_model(base_model.parent / "model")[0].parameters()
    )
    assert "sft was not fine-tuned, it is the model base" in manifest.summary["notes"][0]
    for path in (base_model.parent / "model").iterdir():
        assert manifest.file(f"sft/model/{path.name}").read_bytes() == path.read_bytes()
    assert manifest.file("sft/losses.jsonl").read_bytes() == b""


def test_without_heldout_pairs_it_trains_and_measures_no_loss(
    base_model: Path, corpus: list[Path], tmp_path: Path
) -> None:
    """Started without the launcher, too."""
    made = derived(corpus, tmp_path, max_train=60, min_train=10)
    (made.parent / "heldout.jsonl").write_text("")
    read = json.loads(made.read_text())
    read["files"]["heldout.jsonl"] = {"bytes": 0, "xxh3": checksum(made.parent / "heldout.jsonl")}
    made.write_text(json.dumps(read))
    options = arguments(base_model, made, tmp_path / "out", engine="torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "crawl2llm.stages.finetune.train", *options], env=environment, check=True)
    summary = Manifest.read(tmp_path / "out/sft.manifest.json").summary
    assert summary["trained"] is True and summary["steps"] == 4
    assert summary["heldout_loss_before"] is None and summary["heldout_loss_after"] is None


def test_pairs_of_another_step_are_refused(base_model: Path, tmp_path: Path) -> None:
    said = finished(launched(arguments(base_model, base_model, tmp_path)), 1)
    assert "must be one of 'finetune.pairs'" in said and "Traceback" not in said


def test_what_cannot_be_is_refused() -> None:
    config = SimpleNamespace(max_position_embeddings=64, model_type="llama")
    check_finetuning(TrainSettings.model_validate({"max_length": 64, "batch_size": 16}), 16, config)
    with pytest.raises(InputError, match=r"finetune\.train\.max_length is 65; the model's context is 64"):
        check_finetuning(TrainSettings.model_validate({"max_length": 65, "batch_size": 16}), 1, config)
    with pytest.raises(InputError, match=r"finetune\.train\.batch_size is 16 pairs, fewer than the 17 processes"):
        check_finetuning(TrainSettings.model_validate({"max_length": 64, "batch_size": 16}), 17, config)


def test_eight_billion_parameters_fit_where_the_optimizer_is_sharded() -> None:
    """Llama 3 8B on GPUs of 80 GB."""
    config = SimpleNamespace(
        num_attention_heads=32, num_key_value_heads=8, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32,
        vocab_size=128_256, tie_word_embeddings=False,
    )  # fmt: skip
    shape = memory.shape_of_config(config, 8_030_261_248, 2048)
    settings = tuning_settings(precision="bf16", zero_stage=3, engine="torch")
    at = placed(micro_batch=1, activation_checkpointing=True, processes=8)
    held = memory.fitting_memory_parts(shape, settings, at, 80_000_000_000, 1, cuda=True, where=SECTION)
    assert held["optimizer"] <= 12 * shape.parameters / 8
    with pytest.raises(InputError, match=r"finetune\.train needs about .* train on \d+ GPUs, not 1") as refused:
        memory.fitting_memory_parts(
            shape, settings, replace(at, processes=1), 80_000_000_000, 1, cuda=True, where=SECTION
        )
    assert "pretrain.train" not in str(refused.value)
    with pytest.raises(InputError, match=r"set finetune\.train\.zero_stage to [123]"):
        memory.fitting_memory_parts(
            shape, replace(settings, zero_stage=0), at, 80_000_000_000, 1, cuda=True, where=SECTION
        )
    # Of 8 pairs at once the logits are the largest part; the logits of a chunk are not.
    many = replace(at, micro_batch=8)
    by_chunks = replace(settings, loss_chunk=1024)
    every, few = (
        memory.fitting_memory_parts(shape, made, many, 10**12, 1, True, SECTION) for made in (settings, by_chunks)
    )
    assert max(every, key=lambda part: every[part]) == "logits" and sum(few.values()) < sum(every.values()) - 6e9
    said = memory.changes_that_fit(shape, settings, many, sum(few.values()), 1, True, SECTION)
    assert "set finetune.train.loss_chunk to 1024, which trains again (33.0 GB)" in said


def test_in_fp16_overflows_cost_their_updates_alone(base_model: Path, pairs_manifest: Path, tmp_path: Path) -> None:
    """FSDP2 in two processes, from a loss scale that is too large: counted, no skipped steps, and it learns all the same."""
    changes = {"engine": "torch", "zero_stage": 3, "precision": "fp16", "loss_scale_power": 24}
    said = finished(launched(arguments(base_model, pairs_manifest, tmp_path, **changes), 2))
    summary = Manifest.read(tmp_path / "sft.manifest.json").summary
    assert 0 < summary["overflow_steps"] < 12 and summary["skipped_steps"] == []
    assert said.count("the gradient overflowed in fp16, its update is left out") == summary["overflow_steps"]
    assert summary["loss_scale"] == 2.0 ** (24 - summary["overflow_steps"])
    assert any(f"{summary['overflow_steps']} of {STEPS} updates were left out" in note for note in summary["notes"])
    left_out = [row for row in rows(tmp_path) if "skipped" in row]
    assert len(left_out) == summary["overflow_steps"] and {row["reason"] for row in left_out} == {"overflow"}
    assert summary["heldout_loss_after"] < summary["heldout_loss_before"] - 0.5
