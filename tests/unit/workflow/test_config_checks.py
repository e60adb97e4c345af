"""What of a config is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.stages.evaluate.sandbox import check_sandbox
from crawl2llm.workflow.config_checks import check_config, check_published_models
from tests.unit.training.tiny_published import write_published


def test_a_published_model_is_no_result_of_the_step_that_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step begins with an empty folder: what lies there would be gone."""
    monkeypatch.chdir(tmp_path)
    own = write_published(Path("results/main/pretrain/published/tiny/model"))
    with pytest.raises(InputError, match=r"models\.tiny\.path is .*, a result that a run would remove"):
        check_published_models(validate({"models": {"tiny": {"path": str(own)}}}))
    own.rename("tiny")
    check_published_models(validate({"models": {"tiny": {"path": "tiny"}}}))


def test_programs_of_models_are_not_run_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_sandbox.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"evaluate\.public\.presets has 'humaneval', .* has no bwrap: install it"):
        check_config(
            validate({"evaluate": {"public": {"presets": ["humaneval"]}}, "decontaminate": {"index": {"tasks": []}}})
        )
