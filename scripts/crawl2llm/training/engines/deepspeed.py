"""The engine `deepspeed`: ZeRO 0–3, and what its version 0.19.8 does not do by itself."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers.initialization import no_init_weights

from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint_integrity, engine, initial, layers, loss_scale, model, offload
from crawl2llm.training.checkpoint import Checkpoint, CollectiveError
from crawl2llm.training.checks import FP16
from crawl2llm.training.engines import deepspeed_ema, deepspeed_load
from crawl2llm.training.engines.deepspeed_files import ORDER, convert_to_universal, restrict_unpickling
from crawl2llm.training.engines.saved_parameters import saved_parameters
from crawl2llm.training.group import LONGEST_WAIT

BUCKET = 500_000_000  # elements that are reduced in one piece at most: DeepSpeed's default
NEEDLESS_FILES = ("zero_to_fp32.py", "zero_to_torch.py", "latest_universal")  # it writes these beside its checkpoints


class DeepSpeed(engine.Engine):
    """A DeepSpeed engine with torch's AdamW, or Muon beside it, for one optimizer update at a time."""

    def __init__(self, job: engine.Job) -> None:
        import deepspeed  # which takes seconds

        use_process_group(job.device)
        restrict_unpickling()
        settings, cuda = job.settings, job.device.type == "cuda"
        self.accumulation = job.accumulation
        self.zero, self.low = settings.zero_stage, settings.precision != "fp32"
        self.scaled = settings.precision == FP16
        # DeepSpeed clips under fp32 without ZeRO too, but keeps the norm to itself.
        self.clip_here = settings.gradient_clipping if self.zero == 0 and not self.low else None
        config = deepspeed_config(job, 0.0 if self.clip_here is not None else settings.gradient_clipping)
        self.model = self._build_sharded(job, config) if self.zero == 3 else _build_whole(job)
        if job.recomputed:
            layers.recompute_activations(self.model, job.selective)
        self.optimizer = self._build_optimizer(job, fused=cuda)
        # Without ZeRO, bf16 begins with an update by gradients of zero: it would decay the weights, and count as a step of AdamW's.
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.engine, *_ = deepspeed.initialize(model=self.model, optimizer=self.optimizer, config=config)
        for state in self.optimizer.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"].zero_()
        self.sizes = {name: getattr(p, "ds_shape", p.shape) for name, p in self.model.named_parameters()}
        self.ema = {part: v.clone() for part, v in self._own_parts().items()} if settings.ema else {}
        self._finish_setup(job)

    @staticmethod
    def _build_sharded(job: engine.Job, config: dict[str, Any]) -> Any:
        """The model of which each process holds its part from the beginning; one block at a time is whole."""
        import deepspeed

        with deepspeed.zero.Init(config_dict_or_path=config), no_init_weights():
            sharded_model = initial.empty_model(job.config, "cpu")
        sharded_model.tie_weights()
        parameters = dict(sharded_model.named_parameters())
        for name, value in job.values():
            if name not in parameters:  # a buffer, of which zero.Init has made bf16
                module, _, key = name.rpartition(".")
                setattr(sharded_model.get_submodule(module), key, value.to(job.device))
                continue
            with deepspeed.zero.GatheredParameters(parameters[name], modifier_rank=0), torch.no_grad():
                if dist.get_rank() == 0:
                    parameters[name].copy_(value)
        return sharded_model

    def forward(self, inputs: torch.Tensor, **more: Any) -> Any:
        """As `engine.Engine.forward`."""
        return self.engine(input_ids=inputs, use_cache=False, **more)

    def _begin_micro_batch(self, last: bool) -> None:
        self.engine.set_gradient_accumulation_boundary(last)

    def _backward(self, loss: torch.Tensor, last: bool) -> None:
        self.engine.backward(loss * (self.accumulation / self.micro_batches))  # it divides by the most that a step has
        if not last:
            self.engine.step()

    def _update(self, fits: Callable[[float], bool] | None) -> tuple[float | None, bool]:
        """DeepSpeed skips by itself if the norm is not finite, but under fp32 without ZeRO."""
        norm: Any = None
        if self.clip_here is not None:
            norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_here or float("inf")))
            if not (applied := math.isfinite(norm) and (fits is None or fits(norm))):
                for parameter in self.model.parameters():
                    parameter.grad = None  # which AdamW leaves alone
            self.engine.step()
            return norm, applied
        if self.scaled:
            return self._update_scaled()
        with self._checked_norm(fits) as norms:
            self.engine.step()
        # DeepSpeed's own norm is infinite after a step that was skipped.
        norm = norms[0] if norms else self.engine.get_global_grad_norm()
        norm = None if norm is None else float(norm)
        overflow = bool(getattr(self.engine.optimizer, "overflow", False))
        return norm, not overflow and (norm is None or math.isfinite(norm))

    def _update_scaled(self) -> tuple[float | None, bool]:
        """As `_update` under fp16, whose optimizers ask for the norm of scaled gradients: the norm here is without the scale.

        Raises CollectiveError if the scale is at its minimum and gradients overflow all the same, where DeepSpeed gives up.
        """
        try:
            self.engine.step()
        except Exception as error:  # of no class of its own
            if "loss scale already at minimum" not in str(error):
                raise
            raise CollectiveError(
                "the gradient is not finite at the smallest loss scale of fp16: the training diverges, or its numbers are too large for "
                "fp16; lower pretrain.train.learning_rate, or set precision to bf16 or fp32"
            ) from error
        if bool(getattr(self.engine.optimizer, "overflow", False)):
            return math.inf, False
        norm = self.engine.get_global_grad_norm()
        return (None if norm is None else float(norm)), True

    def loss_scale(self) -> tuple[float, int] | None:
        """As `engine.Engine.loss_scale`, by DeepSpeed's own count of updates since an overflow.

        DeepSpeed does not count the first of them toward a doubling, and counts on after it doubles: its scale doubles after
        window + 1, 2 * window + 1, … of them.
        """
        if not self.scaled:
            return None
        scaler = self.engine.optimizer.loss_scaler
        since_overflow = int(scaler.cur_iter - scaler.last_overflow_iter - 1)
        return float(scaler.cur_scale), max(0, since_overflow - 1) % scaler.scale_window

    def set_loss_scale(self, value: float, steady: int) -> None:
        """As `engine.Engine.set_loss_scale`; the same scale, loaded from DeepSpeed's own checkpoint, stays as it is."""
        if not self.scaled:
            return
        scaler = self.engine.optimizer.loss_scaler
        loaded = scaler.cur_iter > 0
        if not loaded or self.loss_scale() != (value, steady):
            scaler.cur_scale, scaler.last_overflow_iter = value, scaler.cur_iter - steady - 2

    @contextlib.contextmanager
    def _checked_norm(self, fits: Callable[[float], bool] | None) -> Iterator[list[float]]:
        """Have DeepSpeed skip a step whose norm does not fit as it skips one whose norm is not finite; yields the norm that it asked for.

        Each of its optimizers asks `is_invalid_grad_norm` before anything has moved, some of them more than once.
        """
        norms: list[float] = []
        verdicts: list[bool] = []
        module = sys.modules[type(self.engine.optimizer).__module__]
        original = module.is_invalid_grad_norm

        def is_invalid(norm: Any) -> bool:
            if original(norm):
                return True
            norms.append(float(norm))
            if not verdicts:
                verdicts.append(fits is not None and not fits(norms[0]))
            return verdicts[0]

        module.is_invalid_grad_norm = is_invalid  # type: ignore[attr-defined]
        try:
            yield norms
        finally:
            module.is_invalid_grad_norm = original  # type: ignore[attr-defined]

    def save(self, folder: Path) -> None:
        """DeepSpeed's own files: a part of each process."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        fp16_groups = getattr(self.engine.optimizer, "fp16_groups", None) if self.zero == 0 else None
        groups = fp16_groups or [group["params"] for group in self.optimizer.param_groups]
        order = None if self.zero else [[names[id(parameter)] for parameter in group] for group in groups]
        self.engine.save_checkpoint(str(folder.parent), tag=folder.name, client_state={ORDER: order}, save_latest=False)
        dist.barrier()
        if self.ema:
            deepspeed_ema.save(self.ema, folder, bool(self.zero))
        if dist.get_rank() == 0:
            for name in NEEDLESS_FILES:
                (folder.parent / name).unlink(missing_ok=True)

    def load(self, checkpoint: Checkpoint, folder: Path) -> None:
        """A checkpoint of any engine and stage; where other processes saved this stage's parts, they are put together first."""
        if checkpoint.engine != "deepspeed" or checkpoint.zero_stage != self.zero:
            deepspeed_load.adopt_tensors(self, saved_parameters(checkpoint, self.sizes, folder), checkpoint.path)
            dist.barrier()
            return
        convert = checkpoint.zero_stage > 0 and checkpoint.processes != dist.get_world_size()
        path = convert_to_universal(checkpoint, folder) if convert else checkpoint.path
        self.engine._config.load_universal_checkpoint = convert
        try:
            loaded, _ = self.engine.load_checkpoint(str(path.parent), tag=path.name)
        except ValueError as error:  # torch's: groups of parameters that differ
            raise InputError(engine.other_optimizer_text(checkpoint.path, str(error))) from error
        if loaded is None:
            raise InputError(
                f"{checkpoint.path} could not be loaded; {checkpoint_integrity.remedy(checkpoint.path, folder)}"
            )
        # From a universal checkpoint ZeRO 3 hands all groups the same step count, which each would count up.
        for state in self.optimizer.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"] = state["step"].clone()
        for group in self.optimizer.param_groups:  # a checkpoint of another run brings its own
            group |= self.adam
        self.begin_ema()
        deepspeed_ema.load(self.ema, checkpoint.path)  # of a run without, it begins here
        dist.barrier()
        if convert and dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)

    def update_ema(self, weight: float) -> None:
        """As `engine.Engine.update_ema`."""
        for part, value in self._own_parts().items():
            self.ema[part].lerp_(value, weight)

    def begin_ema(self) -> None:
        """Have the EMA of the weights, if there is one, begin with them as they are."""
        for part, value in self._own_parts().items() if self.ema else ():
            self.ema[part].copy_(value)

    def _own_parts(self) -> deepspeed_ema.Parts:
        """This process's part of the fp32 weights: views of them."""
        return {(name, place.first): place.own_part() for name, place in deepspeed_load.places_by_name(self).items()}

    @contextlib.contextmanager
    def using_ema(self) -> Iterator[None]:
        """As `engine.Engine.using_ema`; without ZeRO in fp32 the weights wait in a copy, elsewhere they come from the fp32 ones."""
        kept = {} if self.zero or self.low else {part: value.clone() for part, value in self._own_parts().items()}
        self.put_weights(self.ema_weights())
        try:
            yield
        finally:
            self.put_weights(deepspeed_ema.whole_tensors(kept, self.sizes, False) if kept else self.master_weights())

    @torch.no_grad()
    def put_weights(self, values: engine.Weights) -> None:
        """Compute with these weights until the next update; the fp32 ones of bf16 or ZeRO stay."""
        import deepspeed

        parameters = dict(self.model.named_parameters())
        for name, value in values:
            with deepspeed.zero.GatheredParameters(parameters[name], modifier_rank=0, enabled=self.zero == 3):
                if self.zero < 3 or dist.get_rank() == 0:
                    parameters[name].copy_(value)

    def ema_weights(self) -> engine.Weights:
        """As `master_weights`, of the EMA."""
        for name, value in deepspeed_ema.whole_tensors(self.ema, self.sizes, bool(self.zero)):
            yield name, value.cpu()

    def master_weights(self) -> engine.Weights:
        """Each parameter's name and fp32 master weights, whole, on the CPU."""
        from deepspeed.utils import safe_get_full_fp32_param

        masters = deepspeed_load.masters_of(self.engine) if self.low and self.zero == 0 else {}
        for name, parameter in self.model.named_parameters():
            whole = masters.get(id(parameter)) if self.zero == 0 else safe_get_full_fp32_param(parameter)
            yield name, (parameter if whole is None else whole).detach().float().cpu().clone()


def use_process_group(device: torch.device) -> None:
    """Have DeepSpeed use the process group that there is."""
    import deepspeed

    # Compiled on first use otherwise, for over a minute; without it CPU processes talk through gloo.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", timeout=LONGEST_WAIT, verbose=False)


def deepspeed_config(job: engine.Job, clipping: float) -> dict[str, Any]:
    """DeepSpeed's configuration: https://www.deepspeed.ai/docs/config-json. clipping: the largest norm; 0 does not clip."""
    settings, zero = job.settings, job.settings.zero_stage
    bf16, fp16 = settings.precision == "bf16", settings.precision == FP16
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.accumulation,
        "gradient_clipping": clipping,
        # Reduced at most in one piece; DeepSpeed's 500 million would be allocated whole for a small model too.
        "zero_optimization": {"stage": zero, "reduce_bucket_size": min(model.count_parameters(job.config), BUCKET)},
        "bf16": {"enabled": bf16},
        "timers": {"throughput": {"enabled": False}},  # which waits for the device twice in each micro-batch
        "steps_per_print": 1 << 40,
    }
    if fp16:  # as training/loss_scale.py has it
        config["fp16"] = {
            "enabled": True,
            "loss_scale": 0,  # dynamic
            "initial_scale_power": settings.loss_scale_power,
            "loss_scale_window": settings.loss_scale_window,
            "hysteresis": 1,
            "min_loss_scale": loss_scale.LEAST_SCALE,
        }
    if (bf16 or fp16) and zero:  # DeepSpeed has no fp32 accumulation without ZeRO
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    if wide := settings.reduce_dtype == "fp32":
        config["communication_data_type"] = "fp32"
    # Stage 3 does it by itself; without ZeRO, and by its BF16_Optimizer of stage 1, sums are made after the backward pass. On a CPU
    # nothing goes on beside it, and a second bucket is memory.
    if zero in (1, 2) and (wide or job.device.type == "cuda"):
        config["zero_optimization"]["overlap_comm"] = True
    if offload.is_used(settings):
        largest = max(parameter.numel() for parameter in initial.empty_model(job.config).parameters())
        config["zero_optimization"] |= offload.deepspeed_sections(settings, job.device.type == "cuda", largest)
        config["zero_force_ds_cpu_optimizer"] = False  # torch's AdamW is fused on a CPU too, and needs no compiler
    return config


def _build_whole(job: engine.Job) -> Any:
    """The model as every process has it, fp32, on the CPU: DeepSpeed moves it to the device."""
    return initial.fill_model(initial.empty_model(job.config), torch.device("cpu"), job.values())
