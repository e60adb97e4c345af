"""Muon for the matrices inside a model, AdamW for all else, as one optimizer.

Muon moves a matrix by its gradient's momentum with all singular values made equal (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon), so that rare directions are learnt as fast as common ones. Gradients are clipped before,
as AdamW's are.

Matrices are dealt out, and each process makes its own orthogonal. Where a process holds a part of every matrix it sends the parts to the
matrices' owners, and gets its parts of what they made: two exchanges of a matrix's size. Liu et al. 2025 (https://arxiv.org/abs/2502.16982,
section 2.3) gather each matrix in every process instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

STEPS = 5  # of Newton and Schulz's iteration; singular values end between 0.7 and 1.2
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan et al.: the steepest at zero that stays bounded
# Elements of the matrices that a process makes orthogonal in one piece; it takes several arrays of that size.
AT_ONCE = 1 << 23

Group = dist.ProcessGroup | None
Shares = list[range]  # for each process the places of the matrices that are its own
PlacedUpdates = Iterator[tuple[int, torch.Tensor]]


def orthogonalize(matrices: torch.Tensor, precision: torch.dtype = torch.float32) -> torch.Tensor:
    """[n, rows, columns] → the same with each matrix's singular values near 1; a matrix of zeros stays.

    precision: of the products. Jordan et al. take bf16, whose rounding the iteration bears; GPUs multiply fp32 many times slower.
    """
    a, b, c = QUINTIC
    wide = matrices.size(-2) <= matrices.size(-1)
    x = (matrices if wide else matrices.mT).contiguous()
    x = (x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)).to(precision)
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT.contiguous()).to(matrices.dtype)  # another process is sent it as it lies


class Muon(torch.optim.AdamW):
    """AdamW, except the groups with `momentum`, whose matrices move by orthogonal updates; with `transposed` they are [inputs, outputs].

    State of such a matrix: `momentum`, of its shape, and `step`, which AdamW looks for in every state that it loads. An update has the
    length that a matrix's shape asks for: a factor of √(outputs / inputs), 1 at least, so that one learning rate serves every width
    (Jordan et al.). Weight decay is decoupled, as AdamW's.
    """

    matrix_group: dist.ProcessGroup | None = None  # those that have the same whole matrices; None: all processes
    precision = torch.float32  # in which matrices are made orthogonal

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of all groups. Parameters without a gradient stay as they are."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if "momentum" not in group]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if "momentum" in group:
                self._update_matrices(group)
        return loss

    def _update_matrices(self, parameter_group: dict[str, Any]) -> None:
        """Move a group's matrices, whose gradients are the same in every process, or of which each process has its part."""
        rate, momentum, decay = parameter_group["lr"], parameter_group["momentum"], parameter_group["weight_decay"]
        alike = defaultdict(list)  # matrices of one shape are orthogonalised at once
        for matrix in parameter_group["params"]:
            if matrix.grad is not None:
                alike[matrix.shape, matrix.device, sharded_dimension(matrix)].append(matrix)
        dealt = 0  # the next matrix's process goes on where the last shape's ended
        for (shape, _, cut), matrices in alike.items():
            group = self._process_group(matrices[0])
            ranks = group.size() if group else 1
            piece = max(1, AT_ONCE // shape.numel()) * ranks
            inputs, outputs = shape if parameter_group.get("transposed") else reversed(shape)
            length = rate * max(1.0, outputs / inputs) ** 0.5
            for batch in (matrices[start : start + piece] for start in range(0, len(matrices), piece)):
                shares = [range((owner - dealt) % ranks, len(batch), ranks) for owner in range(ranks)]
                dealt += len(batch)
                turned = (
                    self._whole_updates(batch, momentum, shares, group)
                    if cut is None
                    else self._part_updates(batch, momentum, shares, group)
                )
                for place, update in turned:
                    local_part(batch[place]).mul_(1 - rate * decay).add_(update, alpha=-length)

    def _process_group(self, matrix: torch.Tensor) -> dist.ProcessGroup | None:
        """The processes among which the matrix is shared out, or which have it all; None for a process alone."""
        if isinstance(matrix, DTensor):
            return matrix.device_mesh.get_group(matrix.device_mesh.ndim - 1)
        return self.matrix_group or (dist.group.WORLD if dist.is_initialized() else None)

    def _whole_updates(
        self, matrices: list[torch.Tensor], momentum: float, shares: Shares, group: Group
    ) -> PlacedUpdates:
        """(place, orthogonal update) of each matrix, which every process has. Each makes its share and sends it to the others."""
        rank = group.rank() if group else 0
        updates = [
            self._momentum_update(matrix, momentum, place in shares[rank]) for place, matrix in enumerate(matrices)
        ]
        own_updates = None
        if shares[rank]:
            own_updates = self._orthogonalize(torch.stack([updates[each] for each in shares[rank]]))
        del updates
        for owner, share in enumerate(shares):
            updates_made = own_updates
            if owner != rank:
                updates_made = torch.empty(len(share), *matrices[0].shape, device=matrices[0].device)
            if not share or updates_made is None:
                continue
            if group and group.size() > 1:
                dist.broadcast(updates_made, group=group, group_src=owner)
            yield from zip(share, updates_made, strict=True)

    def _part_updates(
        self, matrices: list[torch.Tensor], momentum: float, shares: Shares, group: Group
    ) -> PlacedUpdates:
        """(place, this process's part of the orthogonal update) of each matrix, of which every process has a part."""
        assert group is not None
        # The transpose of an orthogonal matrix is the transpose's orthogonal one.
        across = sharded_dimension(matrices[0]) == 1
        rows, columns = reversed(matrices[0].shape) if across else matrices[0].shape
        heights = [len(part) for part in row_ranges(rows, group.size())]
        updates = [self._momentum_update(matrix, momentum) for matrix in matrices]
        order = [each for share in shares for each in share]
        sent = torch.cat([(updates[each].mT if across else updates[each]).flatten() for each in order])
        del updates
        mine, height = len(shares[group.rank()]), heights[group.rank()]
        out, into = [len(share) * height * columns for share in shares], [mine * each * columns for each in heights]
        received = sent.new_empty(sum(into))
        dist.all_to_all_single(received, sent, into, out, group=group)
        pieces = zip(received.split(into), heights, strict=True)
        whole_matrices = torch.cat([piece.view(mine, each, columns) for piece, each in pieces], 1)
        whole_matrices = self._orthogonalize(whole_matrices) if mine else whole_matrices
        torch.cat([piece.flatten() for piece in whole_matrices.split(heights, 1)], out=received)
        dist.all_to_all_single(sent, received, out, into, group=group)
        for each, update in zip(order, sent.view(len(order), height, columns), strict=True):
            yield each, update.mT if across else update

    def _orthogonalize(self, matrices: torch.Tensor) -> torch.Tensor:
        return orthogonalize(matrices, self.precision)

    def _momentum_update(self, matrix: torch.Tensor, momentum: float, wants_update: bool = True) -> torch.Tensor:
        """The next momentum's update, after Nesterov, before it is orthogonalised; of a part this process's. Not `wants_update`: the
        momentum.
        """
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if "momentum" not in state:
            state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(matrix)}
        state["step"] += 1
        new_momentum = local_part(state["momentum"]).lerp_(local_part(gradient), 1 - momentum)
        return torch.lerp(local_part(gradient), new_momentum, momentum) if wants_update else new_momentum


def local_part(value: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor; itself if it is whole."""
    return value.to_local() if isinstance(value, DTensor) else value


def sharded_dimension(matrix: torch.Tensor) -> int | None:
    """0 if each process has some of the rows, 1 of the columns; None for a matrix that all have whole. By the last dimension of processes:
    those of others have the same.
    """
    if not isinstance(matrix, DTensor) or matrix.placements[-1].is_replicate():
        return None
    return int(matrix.placements[-1].dim)  # type: ignore[attr-defined]


def row_ranges(rows: int, processes: int) -> list[range]:
    """The rows that each process has: as torch.chunk shares them out, and after it FSDP2 and DTensors."""
    size = -(-rows // processes)
    return [range(min(start, rows), min(start + size, rows)) for start in range(0, size * processes, size)]
