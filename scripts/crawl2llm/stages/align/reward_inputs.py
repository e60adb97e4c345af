"""What a reward model reads: a question with an answer, up to the answer's last token, at which the score is taken.

As transformers reads it where the padding token is the end token: the end token that ends an answer is padding too. Used where a reward
model is trained and where it judges.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.core.errors import InputError
from crawl2llm.training.mixture import mixture_of
from crawl2llm.training.model_loading import SEQUENCE_CLASSIFICATION

Tokens = npt.NDArray[np.int64]


def strip_end_tokens(ids: Tokens, end: int) -> Tokens:
    """Token ids without the end tokens behind them; at least one."""
    last = len(ids)
    while last > 1 and ids[last - 1] == end:
        last -= 1
    return ids[:last]


def input_piece(ids: Tokens, end: int) -> tuple[Tokens, int, int]:
    """The same as a row of a micro-batch, whose last token is no input: one end token behind what is read."""
    return np.append(strip_end_tokens(ids, end), end), 1, 0


def reward_config(config: Any, end: int, key: str) -> Any:
    """`config`, of a language model, as that of a reward model with the same body. end: the id of the end token.

    key: of the config, for errors. Raises InputError for an architecture of which there is none.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN

    name = KNOWN.get(config.model_type)
    if name is None or not name.endswith(SEQUENCE_CLASSIFICATION) or mixture_of(config):
        why = (
            "transformers has no model that scores texts of that type"
            if name is None
            else "mixtures of experts are not taken"
        )
        raise InputError(f"{key}: align.reward takes no model of type {config.model_type!r}: {why}")
    result = copy.deepcopy(config)
    result.architectures, result.num_labels, result.pad_token_id = [name], 1, end
    return result
