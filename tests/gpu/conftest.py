"""What needs a GPU, and compares it with the CPU of the same machine.

    python -m pytest tests/gpu        # some three minutes on an H100; without a GPU all of it is skipped

It needs torch 2.11 or newer, transformers, DeepSpeed, pyarrow and pytest with hypothesis; no compiled part of the project.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def gpu() -> torch.device:
    """The first GPU. Skips the test if there is none."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU is here")
    return torch.device("cuda", 0)
