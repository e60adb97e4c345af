"""A program of the data half starts without pandas, and who needs it has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crawl2llm.chain import skip_pandas
from crawl2llm.chain.steps import program_of

PROGRAM = """
import sys
import pyarrow as pa
from crawl2llm.chain import skip_pandas

with skip_pandas.without_pandas("{step}"):
    table = pa.Table.from_pylist([{{"a": 1, "b": [None, "x"]}}])
    assert table.to_pylist() == [{{"a": 1, "b": [None, "x"]}}] and pa.array([1.5, None]).null_count == 1
    assert pa.array([1, None]).to_numpy(zero_copy_only=False).tolist()[0] == 1
    print("pandas" in sys.modules)
print(len(table.to_pandas()))
"""


@pytest.mark.parametrize(
    ("step", "there"), [("crawl.render", True), ("language.score", False), ("evaluate.model", True)]
)
def test_pandas_is_imported_only_by_who_may_need_it(step: str, there: bool) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(step=step)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(there), "1"] and not done.stderr


def test_no_program_of_the_data_half_imports_pandas_before_it_begins() -> None:
    programs = ", ".join(program_of(step) for step in skip_pandas.DATA_STEPS)
    check = f"import sys, {programs}; print([name for name in sys.modules if name == 'pandas'])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_plan_can_count_the_step_of_a_training() -> None:
    """By transformers, whose imports look for pandas."""
    blocked = 'from crawl2llm.chain import skip_pandas\nwith skip_pandas.without_pandas("pretrain.plan"):\n'
    program = f"{blocked}    from transformers import PreTrainedModel"
    assert subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL).returncode == 0


def test_the_data_half_ends_before_the_first_training() -> None:
    assert (
        "tokenize.encode" in skip_pandas.DATA_STEPS
        and "pretrain.train" not in skip_pandas.DATA_STEPS
        and "evaluate.model" not in skip_pandas.DATA_STEPS
    )
