"""What TRL's own trainers compute of given log-probabilities: their methods, on an object that has what these read and no model."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch

TOKENS = 6  # of a sequence; the last 4 are the answer's


def made(rows: int, seed: int) -> torch.Tensor:
    """Log-probabilities of tokens, fp32 [rows, TOKENS - 1]."""
    return -torch.rand(rows, TOKENS - 1, generator=torch.Generator().manual_seed(seed)) * 3


def trainer(**more: Any) -> Any:
    accelerator = SimpleNamespace(
        device=torch.device("cpu"), gather_for_metrics=lambda value: value, gather=lambda value: value
    )
    metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    return SimpleNamespace(
        model=SimpleNamespace(training=True), accelerator=accelerator, _metrics=metrics, aux_loss_enabled=False,
        precompute_ref_logps=True, _total_train_tokens=0, _tp_size=1, **more,
    )  # fmt: skip


def model(logps: torch.Tensor) -> Any:
    """Returns what a model with TRL's fused head does."""
    rest = torch.zeros_like(logps)
    out = SimpleNamespace(log_probs=logps, entropy=rest, mean_logits=rest, is_top1=rest.bool())
    return lambda **_: out


def batch(rows: int, **more: Any) -> dict[str, Any]:
    mask = torch.tensor([0, 0, 1, 1, 1, 1]).repeat(rows, 1)
    ids = torch.ones(rows, TOKENS, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask, **more}


def masked(logps: torch.Tensor) -> torch.Tensor:
    """0 where TRL's fused head has it: before the answer."""
    return logps * torch.tensor([0, 1, 1, 1, 1])


def dpo(beta: float) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(ratios of chosen answers, of rejected ones, DPOTrainer's loss)."""
    from trl import DPOTrainer

    own, reference = masked(made(8, 1)), masked(made(8, 2)).sum(1)
    of = trainer(
        ld_alpha=None,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        beta=beta,
        use_weighting=False,
    )
    first, second = reference.chunk(2)
    loss = DPOTrainer._compute_loss(of, model(own), batch(8, ref_chosen_logps=first, ref_rejected_logps=second), False)
    ratios = own.sum(1) - reference
    return *ratios.chunk(2), float(loss)


def kto(beta: float, desirable: float, undesirable: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """(ratios, labels, divergence, KTOTrainer's loss)."""
    from trl import KTOTrainer

    own, reference = masked(made(8, 3)), masked(made(8, 4)).sum(1)
    other, reference_other = made(8, 5).sum(1), made(8, 6).sum(1) - 1  # whose mean ratio is positive
    labels = torch.tensor([True, False, True, True, False, False, True, False])
    of = trainer(
        calculate_KL=True, loss_type="kto", beta=beta, desirable_weight=desirable, undesirable_weight=undesirable,
        _compute_kl_logps=lambda *_: other,
    )  # fmt: skip
    given = batch(8, label=labels, ref_logps=reference, ref_KL_logps=reference_other)
    loss = KTOTrainer._compute_loss(of, model(own), given, False)
    apart = (other - reference_other).mean()
    assert apart > 0
    return own.sum(1) - reference, labels, apart, float(loss)
