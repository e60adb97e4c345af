"""How many operations a distillation takes, for an estimate of its time by one that was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Floating-point operations of a parameter for a token (arXiv:2001.08361, section 2.1): a forward pass, and a step of a training.
FORWARD, STEP = 2, 6


def distil_operations(settings: Mapping[str, Any], student: str | None, parameters: Callable[[str], int]) -> float:
    """Operations of a task of compress.distil with these settings; 0 where too little is known.

    A teacher that runs beside makes a forward pass of every token; one that was written, or that has no weight, makes none.
    parameters: of a model, 0 if it is not there yet.
    """
    student_size = parameters(student or "")
    asks_teacher = not settings.get("top_k") and settings.get("text_share", 0) < 1
    teacher_size = parameters(str(settings.get("teacher", ""))) if asks_teacher else 0
    if not student_size or (asks_teacher and not teacher_size):
        return 0.0
    return float(settings.get("tokens", 0) * (STEP * student_size + FORWARD * teacher_size))
