"""What passes between a model's program and its tests: plain values as they are, and nothing else."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.evaluate.sandboxed_program import decode_value, encode_value

keys = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False) | st.binary(max_size=4)
)
values = st.recursive(
    keys | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(keys, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def send_and_read(value: Any) -> Any:
    return decode_value(json.loads(json.dumps(encode_value(value))))


@given(values)
def test_plain_values_come_as_they_are(value: Any) -> None:
    assert send_and_read(value) == value and type(send_and_read(value)) is type(value)


def test_other_values() -> None:
    assert math.isnan(send_and_read(math.nan)) and send_and_read(10**4000) == 10**4000
    assert send_and_read(Counter("aab")) == {"a": 2, "b": 1}
    assert list(send_and_read(iter([1, (2,)]))) == [1, (2,)]
    assert send_and_read(range(2)) != [0, 1]
    for message in ([1], {}, {"list": [1], "set": []}, {"eval": "1"}, {"list": 1}):
        with pytest.raises((TypeError, ValueError, KeyError)):
            decode_value(message)
