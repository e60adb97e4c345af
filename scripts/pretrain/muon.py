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
    """[n, rows, columns] → the same with each matrix's singular values near 1, in fp32; a matrix of zeros stays."""
    a, b, c = QUINTIC
    wide = matrices.size(-2) <= matrices.size(-1)
    x = (matrices if wide else matrices.mT).contiguous()
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


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
        alike = defaultdict(list)  # matrices of one shape are orthogonalised at once
        for matrix in matrices:
            if matrix.grad is not None:
                alike[matrix.shape, matrix.device].append(matrix)
        moved = [matrix for found in alike.values() for matrix in found]
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        shares = [moved[number::ranks] for number in range(ranks)]
        wanted = {id(matrix) for matrix in shares[rank]}
        turned: dict[int, torch.Tensor] = {}
        for found in alike.values():
            updates = {id(matrix): self._update(matrix, momentum) for matrix in found}
            if mine := [name for name in updates if name in wanted]:
                turned.update(zip(mine, orthogonal(torch.stack([updates[name] for name in mine])), strict=True))
        for owner, share in enumerate(shares):
            if ranks > 1 and share:
                if owner == rank:
                    sent = torch.cat([turned[id(matrix)].flatten() for matrix in share])
                else:
                    sent = share[0].new_empty(sum(map(torch.numel, share)), dtype=torch.float32)
                dist.broadcast(sent, owner)
                parts = sent.split([matrix.numel() for matrix in share])
                turned.update((id(matrix), part.view_as(matrix)) for matrix, part in zip(share, parts, strict=True))
        for matrix in moved:
            rows, columns = matrix.shape
            matrix.mul_(1 - rate * decay).add_(turned[id(matrix)], alpha=-rate * max(1.0, rows / columns) ** 0.5)

    def _update(self, matrix: torch.Tensor, momentum: float) -> torch.Tensor:
        """The next momentum's update, after Nesterov, before it is orthogonalised."""
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if "momentum" not in state:
            state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(matrix)}
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - momentum)
        return torch.lerp(gradient, state["momentum"], momentum)
