"""What benchmarks.gpu_training and benchmarks.cpu_training compare: each trains the same shape on the same tokens, in processes of its own.

Every contender is a function (plan) → (model, run). `run(steps, done)` trains and calls `done(n)` after step n. Process 0 prints
what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest import KEPT, Plan, batches, device_of, shape

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import TrainSettings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
RATE, CLIPPING, DECAY, BETAS = 3e-4, 1.0, 0.1, (0.9, 0.95)
Run = Callable[[int, Callable[[int], None]], None]


def stand_in() -> None:
    """xxhash, which initial weights are seeded with, may be absent here: any hash does for weights that nobody keeps."""
    if importlib.util.find_spec("xxhash") is None:
        import hashlib
        import types

        def digest(data: bytes, seed: int = 0) -> int:
            return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=str(seed).encode()).digest(), "big")

        made = types.ModuleType("xxhash")
        made.xxh3_64_intdigest = digest  # type: ignore[attr-defined]
        sys.modules["xxhash"] = made


def completed(given: dict[str, Any]) -> TrainSettings:
    """pretrain.train with these keys; SystemExit for one that there is not."""
    from crawl2llm.training.pretraining_settings import TrainSettings

    for key in given.keys() - TrainSettings.model_fields.keys():
        raise SystemExit(f"--set {key}: no key of pretrain.train")
    return TrainSettings.model_validate(given)


def ours(name: str) -> Callable[[Plan], tuple[Any, Run]]:
    """The trainer of this project with one of its engines."""

    def build(plan: Plan) -> tuple[Any, Run]:
        from functools import partial

        stand_in()
        from crawl2llm.training import engine, group, initial
        from crawl2llm.training.engine_settings import EngineSettings
        from crawl2llm.training.engines.by_name import ENGINES

        device = device_of(plan)
        group.join_group(device, plan.threads)
        own = {"zero_stage": plan.zero_stage, "precision": plan.precision, "engine": name, "learning_rate": RATE}
        settings = completed(own | plan.settings)
        job = engine.Job(
            config=shape(plan),
            settings=EngineSettings.of_pretraining(settings),
            device=device,
            micro_batch=plan.micro_batch,
            accumulation=plan.accumulation,
            recomputed=settings.activation_checkpointing,
            selective=settings.selective_checkpointing,
            values=partial(initial.random_weights, shape(plan), 0),
        )
        built, made = ENGINES[name](job), batches(plan, device)

        def run(steps: int, done: Callable[[int], None]) -> None:
            for step in range(1, steps + 1):
                run.loss = built.step(made[step % KEPT], RATE).loss  # type: ignore[attr-defined]
                done(step)

        return built.model, run

    return build


def loop(plan: Plan, model: Any, optimizer: Any, loss_of: Callable[[Any, Any], Any]) -> Run:
    """A loop as in nanoGPT's train.py: autocast, accumulation without synchronisation, clipping, one optimizer."""
    import torch
    import torch.distributed as dist

    device, world = device_of(plan), int(os.environ["WORLD_SIZE"])
    if world > 1:
        dist.init_process_group("gloo" if plan.device == "cpu" else "nccl")
    raw = model
    if plan.compile:
        model = torch.compile(model)
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device] if plan.device == "cuda" else None)
    made = batches(plan, device)
    low = torch.autocast(plan.device, torch.bfloat16, enabled=plan.precision == "bf16")

    def run(steps: int, done: Callable[[int], None]) -> None:
        for step in range(1, steps + 1):
            for number, tokens in enumerate(made[step % KEPT]):
                if world > 1:
                    model.require_backward_grad_sync = number + 1 == plan.accumulation
                with low:
                    loss = loss_of(model, tokens) / plan.accumulation
                loss.backward()
            torch.nn.utils.clip_grad_norm_(raw.parameters(), CLIPPING)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            run.loss = loss.detach() * plan.accumulation  # type: ignore[attr-defined]
            done(step)

    return run


def plain(plan: Plan) -> tuple[Any, Run]:
    """The same Llama of transformers in that loop, with torch's own cross-entropy."""
    import torch
    from torch.nn import functional
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(shape(plan), dtype=torch.float32).to(device_of(plan))
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY, fused=True)

    def loss_of(runs: Any, tokens: Any) -> Any:
        logits = runs(input_ids=tokens[:, :-1], use_cache=False).logits
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    return model, loop(plan, model, adam, loss_of)


def nanogpt(plan: Plan) -> tuple[Any, Run]:
    """The model of github.com/karpathy/nanoGPT, from a copy of its repository: GPT-2's layers, of the same width, depth and vocabulary."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", Path(plan.nanogpt or "") / "model.py")
    if spec is None or spec.loader is None or not Path(spec.origin or "").is_file():
        raise SystemExit(f"--nanogpt {plan.nanogpt} has no model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(sys.stderr):  # it prints
        config = module.GPTConfig(plan.context, plan.vocabulary, plan.layers, plan.heads, plan.hidden, 0.0, False)
        model = module.GPT(config).to(device_of(plan))
        adam = model.configure_optimizers(DECAY, RATE, BETAS, plan.device)
    return model, loop(plan, model, adam, lambda runs, tokens: runs(tokens[:, :-1], tokens[:, 1:].contiguous())[1])


def litgpt(plan: Plan) -> tuple[Any, Run]:
    """The model and loss of github.com/Lightning-AI/litgpt, a package beside ours: the same shape, but for a head of its own."""
    import torch
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    config = Config(
        block_size=plan.context, vocab_size=plan.vocabulary, padded_vocab_size=plan.vocabulary, n_layer=plan.layers, n_embd=plan.hidden,
        n_head=plan.heads, n_query_groups=plan.kv_heads, intermediate_size=plan.intermediate, rotary_percentage=1.0, bias=False,
        parallel_residual=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
    )  # fmt: skip
    model = GPT(config)
    model.apply(model._init_weights)
    model = model.to(device_of(plan))
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY, fused=True)
    return model, loop(
        plan, model, adam, lambda runs, tokens: chunked_cross_entropy(runs(tokens[:, :-1]), tokens[:, 1:], chunk_size=0)
    )


def trainer(plan: Plan) -> tuple[Any, Run]:
    """transformers' Trainer, which needs accelerate, on the same Llama."""
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    parts: list[Any] = []  # losses of the micro-batches of a step, which add up to that of the step

    model = AutoModelForCausalLM.from_config(shape(plan), dtype=torch.float32)
    rows = [row[:-1] for batch in batches(plan, "cpu") for part in batch for row in part]

    def run(steps: int, done: Callable[[int], None]) -> None:
        class Told(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                parts.clear()

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                done(state.global_step)

        class Kept(Trainer):
            def training_step(self, *args: Any, **more: Any) -> Any:
                parts.append(super().training_step(*args, **more))
                return parts[-1]

        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=plan.micro_batch, gradient_accumulation_steps=plan.accumulation, max_steps=steps,
                learning_rate=RATE, lr_scheduler_type="constant", weight_decay=DECAY, adam_beta1=BETAS[0], adam_beta2=BETAS[1],
                max_grad_norm=CLIPPING, bf16=plan.precision == "bf16", optim="adamw_torch_fused", torch_compile=plan.compile,
                use_cpu=plan.device == "cpu", logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
                dataloader_drop_last=True, dataloader_pin_memory=plan.device == "cuda",
                ddp_backend="gloo" if plan.device == "cpu" else "nccl",
            )  # fmt: skip
            data: Any = [{"input_ids": row, "labels": row} for row in rows]
            with contextlib.redirect_stdout(sys.stderr):
                Kept(model, arguments, train_dataset=data, callbacks=[Told()]).train()
            run.loss = sum(parts)  # type: ignore[attr-defined]

    return model, run


CONTENDERS: dict[str, Callable[[Plan], tuple[Any, Run]]] = {
    "torch": ours("torch"), "deepspeed": ours("deepspeed"), "plain": plain, "nanogpt": nanogpt, "litgpt": litgpt, "trainer": trainer,
}  # fmt: skip


def measure(name: str, plan: Plan) -> dict[str, Any]:
    """Train one contender in this process; seconds of a step (the median of blocks of steps), peak memory, loss, and kinds of kernels."""
    import torch

    from benchmarks import kernels

    cuda = plan.device == "cuda"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if not cuda:
        torch.set_num_threads(plan.threads)
    model, run = CONTENDERS[name](plan)
    clock: list[float] = []
    profile = kernels.profiler(cuda) if plan.profile else None

    def done(step: int) -> None:
        timed = step - plan.warmup
        if 0 <= timed <= plan.steps and timed % plan.block == 0:
            if cuda:
                torch.cuda.synchronize()
                if not timed:
                    torch.cuda.reset_peak_memory_stats()
            clock.append(time.perf_counter())
        if profile and timed == plan.steps:
            profile.start()

    run(plan.warmup + plan.steps + (plan.block if profile else 0), done)
    found: dict[str, Any] = {}
    if profile:
        if cuda:
            torch.cuda.synchronize()
        profile.stop()
        found["kinds"] = kernels.kinds(profile, plan.block, cuda)
    # What torchtitan's log has too: reserved, with the holes between tensors.
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    peak = torch.cuda.max_memory_reserved() if cuda else resident
    own = dict(model.named_parameters())
    # Positions are looked up alone; the tied embedding is multiplied too.
    looked_up = sum(p.numel() for key, p in own.items() if "wpe" in key)
    total = sum(getattr(p, "ds_numel", p.numel()) for p in own.values())
    return found | {
        "seconds": statistics.median(b - a for a, b in pairwise(clock)) / plan.block,
        "memory_bytes": peak,
        "loss": float(run.loss),  # type: ignore[attr-defined]
        "parameters": total,
        "multiplied": total - looked_up,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("plan", help="the fields of Plan as JSON")
    args = parser.parse_args()
    found = measure(args.name, Plan(**json.loads(args.plan)))
    if os.environ["RANK"] == "0":
        print(json.dumps(found), flush=True)
    if (dist := sys.modules.get("torch.distributed")) and dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
