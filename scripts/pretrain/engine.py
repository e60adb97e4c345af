"""DeepSpeed: the process group, the engine with its settings, and the weights gathered from it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from scripts.pretrain.muon import Muon
from scripts.workflow.errors import InputError

# How long a process waits for the others before it ends. While one works alone (copies token files to its node, converts
# or seals a checkpoint, writes the model), many terabytes may have to move. In a step no process has anything to do that
# takes minutes: one that is not there after this time will not come, and the GPUs wait for nothing.
ALONE = timedelta(hours=6)
STEP = timedelta(minutes=15)


def choose_device(wanted: str, processes_here: int) -> torch.device:
    """The device of this process. Raises InputError where the machine lacks what `wanted` asks for."""
    found = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and not found):
        return torch.device("cpu")
    if not found:
        raise InputError(
            f"pretrain.train.device is 'cuda', but torch {torch.__version__} sees no CUDA device on {socket.gethostname()} "
            f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r}); use 'cpu' or 'auto', or a GPU node"
        )
    if processes_here > found:
        raise InputError(
            f"pretrain.train.processes is {processes_here}, more than the {found} CUDA devices of this node"
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def start(device: torch.device, threads: int) -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, deterministic on a CPU."""
    os.environ["DS_ACCELERATOR"] = device.type
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed|deepspeed")
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 - for debugging; costs time
    import deepspeed

    # Compiled on first use otherwise, for over a minute; without it CPU processes talk through gloo.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    backend = "gloo" if device.type == "cpu" else "nccl"
    deepspeed.init_distributed(backend, timeout=ALONE, verbose=False)


def wait_at_most(time: timedelta) -> None:
    """Set how long collective calls wait from now on, in every group (as torchtitan does, utils.set_pg_timeouts)."""
    for group in dist.distributed_c10d._world.pg_map:
        dist.distributed_c10d._set_pg_timeout(time, group)


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """A part of the training loop in which one process works alone and the others wait for it."""
    wait_at_most(ALONE)
    try:
        yield
    finally:
        wait_at_most(STEP)


def stop(status: int) -> None:
    """Leave the process group together and end this process; the interpreter's own end sometimes aborts."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    logging.shutdown()
    os._exit(status)


class Engine:
    """A DeepSpeed engine with torch's AdamW, or Muon beside it, for one optimizer update at a time."""

    def __init__(
        self,
        model: nn.Module,
        groups: list[dict[str, Any]],
        settings: dict[str, Any],
        micro_batch: int,
        accumulation: int,
        universal: bool,
    ) -> None:
        import deepspeed

        stage, clipping = settings["zero_stage"], settings["gradient_clipping"]
        bf16 = settings["precision"] == "bf16"
        # DeepSpeed clips under fp32 without ZeRO too, but keeps the norm to itself.
        self.clip_here = clipping if stage == 0 and not bf16 else None
        self.skipped = False
        self.stage, self.model, self.bf16 = stage, model, bf16
        self.own = [(group["scale"], group["weight_decay"]) for group in groups]
        self.adam = {"betas": (settings["beta1"], settings["beta2"]), "eps": settings["epsilon"]}
        kind = Muon if settings["optimizer"] == "muon" else torch.optim.AdamW
        cuda = os.environ["DS_ACCELERATOR"] == "cuda"
        self.optimizer = kind(groups, lr=settings["learning_rate"], **self.adam, fused=cuda)
        size = sum(parameter.numel() for parameter in model.parameters())
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": micro_batch,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": 0.0 if self.clip_here is not None else clipping,
            # Reduced at most in one piece; DeepSpeed's 500 million would be allocated whole for a small model too.
            "zero_optimization": {"stage": stage, "reduce_bucket_size": min(size, 500_000_000)},
            "bf16": {"enabled": bf16},
            "steps_per_print": 1 << 40,
            "checkpoint": {"load_universal": universal},
        }
        if bf16 and stage:  # DeepSpeed has no fp32 accumulation without ZeRO
            config["data_types"] = {"grad_accum_dtype": "fp32"}
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=self.optimizer, config=config)

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """Token ids [batch, context] → logits [batch, context, vocabulary] in fp32."""
        return self.engine(input_ids=inputs, use_cache=False).logits.float()

    def loaded(self) -> None:
        """To be called after a checkpoint was loaded: gives each parameter group a step count of its own.

        From a universal checkpoint, DeepSpeed 0.19.8 under ZeRO 3 hands all groups the same tensor, which each then
        counts up, and the first group's weight decay, which is set again with the learning rate.
        """
        for state in self.optimizer.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"] = state["step"].clone()
        for group in self.optimizer.param_groups:  # a checkpoint of another run brings its own
            group |= self.adam

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of all groups, each by its scale, and their weight decay (see loaded)."""
        for group, (scale, decay) in zip(self.optimizer.param_groups, self.own, strict=True):
            group["lr"], group["weight_decay"] = rate * scale, decay

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Accumulate the gradient of a micro-batch; update the weights after the last one of a step.

        Where the norm of the whole gradient is not finite, weights and optimizer stay as they are: `skipped` is True,
        on every process. DeepSpeed 0.19.8 does so by itself, but under fp32 without ZeRO.
        """
        # A loss that is not finite can have a finite gradient (a target of probability 0): it does not get through.
        self.engine.backward(loss * torch.where(loss.detach().isfinite(), 1.0, float("nan")))
        if last and self.clip_here is not None:
            self.norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_here or float("inf"))
            if not math.isfinite(float(self.norm)):
                for parameter in self.model.parameters():
                    parameter.grad = None  # which AdamW leaves alone
        self.engine.step()
        if last and self.clip_here is None:
            self.norm = self.engine.get_global_grad_norm()
        if last:
            found = self.gradient_norm
            self.skipped = bool(getattr(self.engine.optimizer, "overflow", False)) or (
                found is not None and not math.isfinite(found)
            )

    @property
    def gradient_norm(self) -> float | None:
        """The norm of the last step's whole gradient, before clipping."""
        return None if self.norm is None else float(self.norm)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter's name and fp32 master weights, whole, on the CPU. A collective call to be run to its end."""
        from deepspeed.utils import safe_get_full_fp32_param

        masters = {}
        if self.bf16 and self.stage == 0:
            low, high = self.engine.optimizer.fp16_groups, self.engine.optimizer.fp32_groups
            masters = {id(p): m for ps, ms in zip(low, high, strict=True) for p, m in zip(ps, ms, strict=True)}
        for name, parameter in self.model.named_parameters():
            whole = masters.get(id(parameter)) if self.stage == 0 else safe_get_full_fp32_param(parameter)
            yield name, (parameter if whole is None else whole).detach().float().cpu().clone()
