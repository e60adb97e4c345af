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

STEPS = 5  # of Newton and Schulz's iteration; singular values end between 0.7 and 1.2
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan et al.: the steepest at zero that stays bounded


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """[n, rows, columns] → the same with each matrix's singular values near 1, in fp32; a matrix of zeros stays."""
    a, b, c = QUINTIC
    wide = matrices.size(-2) <= matrices.size(-1)
    x = matrices if wide else matrices.mT
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
        alike = defaultdict(list)  # matrices of one shape are orthogonalised at once
        for matrix in matrices:
            if matrix.grad is not None:
                alike[matrix.shape, matrix.device].append((matrix, matrix.grad))
        for found in alike.values():
            updates = []
            for matrix, gradient in found:
                state = self.state[matrix]
                if "momentum" not in state:
                    state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(matrix)}
                state["step"] += 1
                state["momentum"].lerp_(gradient, 1 - momentum)
                updates.append(torch.lerp(gradient, state["momentum"], momentum))  # Nesterov's
            rows, columns = updates[0].shape
            length = rate * max(1.0, rows / columns) ** 0.5
            for (matrix, _), update in zip(found, orthogonal(torch.stack(updates)), strict=True):
                matrix.mul_(1 - rate * decay).add_(update, alpha=-length)
