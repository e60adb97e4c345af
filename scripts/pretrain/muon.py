"""Muon for the matrices inside a model, AdamW for all else, as one optimizer.

Muon moves a matrix by its gradient's momentum with all singular values made equal (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon), so that rare directions are learnt as fast as common ones. Gradients are clipped before,
as AdamW's are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

STEPS = 5  # of Newton and Schulz's iteration; singular values end between 0.7 and 1.2
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan et al.: the steepest at zero that stays bounded


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """[n, rows, columns] → the same with each matrix's singular values near 1; a matrix of zeros stays."""
    a, b, c = QUINTIC
    wide = matrices.size(-2) <= matrices.size(-1)
    x = (matrices if wide else matrices.mT).contiguous()
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT.contiguous()  # another process is sent it as it lies


class Muon(torch.optim.AdamW):
    """AdamW, but for the groups with `momentum`, whose matrices move by orthogonal updates.

    State of such a matrix: `momentum`, of its shape, and `step`, which AdamW looks for in every state that it loads. An update has the
    length that a matrix's shape asks for: a factor of √(rows / columns), 1 at least, so that one learning rate serves every width
    (Jordan et al.). Weight decay is decoupled, as AdamW's.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of all groups. Parameters without a gradient stay as they are."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if "momentum" not in group]
        try:
            found = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if "momentum" in group:
                self._move(group["params"], group["lr"], group["momentum"], group["weight_decay"])
        return found

    def _move(self, matrices: Iterable[torch.Tensor], rate: float, momentum: float, decay: float) -> None:
        """Move matrices whose gradients are the same in every process. Each process orthogonalises its share of them."""
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        alike = defaultdict(list)  # matrices of one shape are orthogonalised at once
        for matrix in matrices:
            if matrix.grad is not None:
                alike[matrix.shape, matrix.device].append(matrix)
        dealt = 0  # the next matrix's process goes on where the last shape's ended
        for found in alike.values():
            updates = [self._update(matrix, momentum) for matrix in found]
            shares = [range((owner - dealt) % ranks, len(found), ranks) for owner in range(ranks)]
            dealt += len(found)
            own = orthogonal(torch.stack([updates[each] for each in shares[rank]])) if shares[rank] else None
            for owner, share in enumerate(shares):
                turned = own if owner == rank else updates[0].new_empty(len(share), *found[0].shape)
                if not share or turned is None:
                    continue
                if ranks > 1:
                    dist.broadcast(turned, owner)
                for each, update in zip(share, turned, strict=True):
                    rows, columns = update.shape
                    found[each].mul_(1 - rate * decay).add_(update, alpha=-rate * max(1.0, rows / columns) ** 0.5)

    def _update(self, matrix: torch.Tensor, momentum: float) -> torch.Tensor:
        """The next momentum's update, after Nesterov, before it is orthogonalised."""
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if "momentum" not in state:
            state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(matrix)}
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - momentum)
        return torch.lerp(gradient, state["momentum"], momentum)
