"""Copies of the weights in bf16 or fp16 that a model computes with, beside fp32 master weights: engine torch at stage 0 without autocast.

Gradients are added up in fp32, each as soon as a backward pass has it, so that there is one in low precision at a time. Several processes
reduce them in fp32, in buckets, from the last layer to the first, while the backward pass goes on, as DDP does (Li et al. 2020,
https://arxiv.org/abs/2006.15704, section 3.2.3). DDP itself would add them up and reduce them in the precision of the copies.
"""

from __future__ import annotations

import weakref
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

BUCKET = 25 << 20  # bytes of gradients that are reduced at once: DDP's default


class WeightCopies:
    """A model whose parameters are copies in `dtype`, and `masters`, the fp32 weights that it had, by name."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, processes: int) -> None:
        self.copies = dict(model.named_parameters())
        self.masters = {name: nn.Parameter(copy.detach()) for name, copy in self.copies.items()}
        self.processes, self.last = processes, True
        self.buckets: list[torch.Tensor] = []
        self.bucket_of: dict[nn.Parameter, int] = {}
        if processes > 1:
            self._make_buckets()
        places = list(self.bucket_of.values())
        self.counts = [places.count(place) for place in range(len(self.buckets))]  # gradients that a bucket waits for
        self.missing = list(self.counts)
        self.reductions: list[dist.Work] = []
        # Python's collector does not look into hooks: one that held this object would keep the model for ever.
        add_gradient = partial(WeightCopies._add_gradient, weakref.proxy(self))
        for name, copy in self.copies.items():
            copy.data = copy.data.to(dtype)
            copy.register_post_accumulate_grad_hook(partial(add_gradient, self.masters[name]))

    def _make_buckets(self) -> None:
        """Give each master weight a gradient that lies in a bucket, in the order in which a backward pass makes them."""
        group: list[nn.Parameter] = []
        masters = list(reversed(self.masters.values()))
        for place, master in enumerate(masters):
            group.append(master)
            if place + 1 < len(masters) and sum(weight.nbytes for weight in group) < BUCKET:
                continue
            bucket = torch.zeros(sum(weight.numel() for weight in group), device=master.device)
            for weight, part in zip(group, bucket.split([weight.numel() for weight in group]), strict=True):
                weight.grad = part.view_as(weight)
                self.bucket_of[weight] = len(self.buckets)
            self.buckets.append(bucket)
            group = []

    def begin_micro_batch(self, last: bool) -> None:
        """Before a backward pass; `last` of a step, after which gradients are reduced."""
        self.last = last

    def _add_gradient(self, master: nn.Parameter, copy: torch.Tensor) -> None:
        assert copy.grad is not None
        if master.grad is None:
            master.grad = copy.grad.float()
        else:
            master.grad.add_(copy.grad)
        copy.grad = None
        if self.buckets and self.last:
            self.missing[self.bucket_of[master]] -= 1
            # In the same order on every process, whatever the order in which its gradients come.
            while len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
                self._reduce_next()

    def _reduce_next(self) -> None:
        bucket = self.buckets[len(self.reductions)].div_(self.processes)
        work = dist.all_reduce(bucket, async_op=True)
        assert work is not None
        self.reductions.append(work)

    def finish_gradients(self) -> None:
        """After a step's last backward pass: the masters' gradients are the mean over all processes. A collective call."""
        while len(self.reductions) < len(self.buckets):  # a parameter had no part in the loss
            self._reduce_next()
        for work in self.reductions:
            work.wait()
        self.reductions, self.missing = [], list(self.counts)

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the copies follow the master weights."""
        torch._foreach_copy_(list(self.copies.values()), list(self.masters.values()))
