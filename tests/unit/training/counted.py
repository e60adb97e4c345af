"""The peak memory of a step and of a validation of the real engine, counted tensor by tensor without a GPU and without their values.

    python -m tests.unit.training.counted PROCESSES CASES

torch's fake tensors have shapes alone, and a fake process group takes every collective call for done. After each operation the storages
that are alive are added up, as they are at that moment: FSDP2 frees what it gathered by giving a storage no bytes. CASES: a JSON list of
(settings of pretrain.train, placement). Prints for each the estimate of a GPU without its program, and what was counted, in bytes.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import weakref
from typing import Any

HIDDEN, LAYERS, VOCABULARY, CONTEXT = 256, 4, 16_384, 256


def main() -> int:
    processes, cases = int(sys.argv[1]), json.loads(sys.argv[2])
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from transformers import AutoConfig

    import crawl2llm.training.engines.torch as engines
    from crawl2llm.training import engine, fused_cross_entropy, initial, memory
    from crawl2llm.training.estimate import torch as estimate
    from tests.unit.training.typed import engine_settings, placed

    class Live(TorchDispatchMode):
        """Adds up the storages that are alive after each operation."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, weakref.ref[Any]] = {}
            self.peak = 0

        def alive(self) -> int:
            there = ((key, found()) for key, found in list(self.known.items()))
            sizes = {key: storage.nbytes() for key, storage in there if storage is not None}
            self.known = {key: self.known[key] for key in sizes}
            return sum(sizes.values())

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    storage = getattr(leaf, "_local_tensor", leaf).untyped_storage()
                    self.known[storage._cdata] = weakref.ref(storage)
            self.peak = max(self.peak, self.alive())
            return out

    class Applied(engines.Torch):
        """Applies every update: whether it may be is a value, and there are none."""

        def _update(self, fits: Any) -> tuple[float | None, bool]:
            parameters = list(self.weights().values())
            total: Any = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            total = total.full_tensor() if hasattr(total, "full_tensor") else total
            torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, total)
            self.optimizer.step()
            if self.copies:
                self.copies.refresh()
            self.optimizer.zero_grad()
            return 1.0, True

    dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    torch.set_num_threads(1)
    mesh = engines.init_device_mesh("cpu", (processes,))
    engines.init_device_mesh = lambda *_, **__: mesh  # it would compare values
    config = AutoConfig.for_model(
        "llama", hidden_size=HIDDEN, intermediate_size=704, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0, pad_token_id=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    size = sum(parameter.numel() for parameter in initial.empty_model(config).parameters())
    shape = memory.shape_of_config(config, size, CONTEXT)
    for settings, placement in cases:
        train = engine_settings(**{"engine": "torch", "learning_rate": 1e-3, **settings})
        steps, micro = placement.pop("accumulation"), placement["micro_batch"]
        place = placed(processes=processes, largest=micro * processes * steps, **placement)
        parts = memory.memory_parts(shape, train, place, cuda=True)
        how = memory.Training(
            micro_batch=micro, precision=train.precision, zero_stage=train.zero_stage, processes=processes,
            recomputed=place.activation_checkpointing, selective=place.selective_checkpointing, chunk=train.loss_chunk,
            accumulated=steps > 1, cuda=True, autocast=train.autocast,
        )  # fmt: skip
        validated = estimate.validation_moment(shape, how)
        fused_cross_entropy.CACHE, live = fused_cross_entropy.GPU_BYTES, Live()
        with FakeTensorMode(allow_non_fake_inputs=True), live:
            job = engine.Job(
                config=config, settings=train, device=torch.device("cpu"), micro_batch=micro, accumulation=steps,
                recomputed=place.activation_checkpointing, selective=place.selective_checkpointing, values=lambda: iter(()),
                fill=lambda made, *_: made, build_model=lambda: initial.empty_model(config, "cpu"),
            )  # fmt: skip
            built = Applied(job)
            tokens = torch.zeros(steps, micro, CONTEXT + 1, dtype=torch.int64)
            counted = {}
            for _ in range(2):
                gc.collect()
                live.peak = 0
                built.step(tokens, 1e-3)
            counted["step"], live.peak, fused_cross_entropy.CACHE = live.peak, 0, fused_cross_entropy.PIECE
            gc.collect()
            built.evaluate(tokens[0, :, :-1].contiguous(), tokens[0, :, 1:].contiguous())
            counted["validation"] = live.peak
        estimates = {
            "step": sum(parts.values()) - parts["program"],
            "validation": sum(validated.values()) - validated["program"],
        }
        print(
            json.dumps({"estimate": estimates, "counted": counted, "logits": 4 * micro * CONTEXT * VOCABULARY}),
            flush=True,
        )
        del built, job
        gc.collect()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
