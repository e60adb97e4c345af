"""What a person sees of Snakemake's own words."""

from __future__ import annotations

import pytest

from scripts.watch.handler import plain

SMK = "/x y/rules/common.smk"
MISSING = "MissingRuleException:\nNo rule to produce {} (if you use input functions make sure that they don't raise unexpected exceptions)."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'WorkflowError in file "{SMK}", line 31:\na is wrong\n  File "{SMK}", line 31, in <module>', "error: a is wrong"),
        (
            f'Busy in file "{SMK}", line 300:\nanother run\n  File "{SMK}", line 3, in __onstart\n  File "b.py", line 1, in hold',
            "error: another run",
        ),
        ("WorkflowError:\nnot this\nnor that", "error: not this\nnor that"),
        ('WorkflowError in rule a in file "x.smk", line 3:\nodd', 'WorkflowError in rule a in file "x.smk", line 3:\nodd'),
        ("MissingRuleException:\nNo rule to produce x", "MissingRuleException:\nNo rule to produce x"),
        (MISSING.format("pretrain_trian"), "error: pretrain_trian is no rule, nor a file that one makes (did you mean pretrain_train?)"),
        (MISSING.format("pretrain.train"), "error: pretrain.train is no rule, nor a file that one makes (did you mean pretrain_train?)"),
        (MISSING.format("results/x.json"), "error: results/x.json is no rule, nor a file that one makes"),
    ],
)  # fmt: skip
def test_refusals_are_plain_and_everything_else_is_as_it_was(text: str, shown: str) -> None:
    assert plain(text) == shown
