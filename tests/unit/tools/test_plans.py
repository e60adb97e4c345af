"""What the configs of the repository say of themselves is so: sizes, GPUs, and the table of their plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from crawl2llm.chain import config
from crawl2llm.chain.model_registry import TUNING_STEPS, models_made_by
from crawl2llm.commands.plan import tuning
from crawl2llm.training import gpus
from crawl2llm.training.resource_plan import TIGHT
from crawl2llm.workflow.published_checks import check_published_uses
from tests.unit.training.header_published import write_headers
from tools import plans

BF16 = [path for path in plans.config_paths() if "precision: bf16" in path.read_text(encoding="utf-8")]
TUNED = [path for path in BF16 if path.stem.startswith("tune-")]  # which begin with a published model
GPU_CONFIGS = [path for path in BF16 if path not in TUNED]


def test_the_table_is_up_to_date() -> None:
    page = plans.PAGE.read_text(encoding="utf-8")
    assert page == plans.with_table(page), "run `make docs`"


def test_every_config_has_its_row() -> None:
    page = plans.PAGE.read_text(encoding="utf-8")
    assert len(GPU_CONFIGS) >= 3
    for path in plans.config_paths():
        assert f"`{path.relative_to(plans.ROOT)}`|" in page


def test_a_config_that_nobody_said_a_gpu_of_is_an_error() -> None:
    assert set(plans.GPUS) == {path.relative_to(plans.ROOT).as_posix() for path in plans.config_paths()}
    with pytest.raises(KeyError, match=r"configs/new\.yaml is not in GPUS"):
        plans.gpu_of(plans.ROOT / "configs" / "new.yaml")


@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: str(path.stem))
def test_every_config_for_gpus_fits_the_gpu_that_it_names_with_a_reserve(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    said = re.search(r"\b(?:GPUs?|H100) of (\d+) GB", text.splitlines()[0])
    assert said and (gpu := gpus.find(plans.gpu_of(path))), "the first line does not say for what GPU"
    assert gpu.memory == 1e9 * int(said[1])
    summary, found = plans.training_plan(path)
    assert found["memory"]["total"] <= TIGHT * found["available"], found["memory"]
    train = config.validate(yaml.safe_load(text))["pretrain"]["train"]
    unit = train["micro_batch"] * found["processes"] * summary["shape"]["context"]
    assert train["global_batch_tokens"] % unit == 0


@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: str(path.stem))
def test_every_config_for_gpus_has_the_parameters_that_its_first_line_says(path: Path) -> None:
    head = path.read_text(encoding="utf-8").splitlines()[0]
    number, unit = re.search(r"([\d.]+) (million|billion) parameters", head).groups()  # type: ignore[union-attr]
    said = float(number) * {"million": 1e6, "billion": 1e9}[unit]
    half = 0.5 * said / float(number) * 10 ** -len(number.partition(".")[2])  # rounded to the digits that are shown
    assert abs(plans.training_plan(path)[0]["parameters"]["total"] - said) <= max(half, 0.05 * said)


@pytest.mark.parametrize(
    "path", [path for path in plans.config_paths() if path not in GPU_CONFIGS], ids=lambda path: path.stem
)
def test_every_config_for_laptops_fits_one(path: Path) -> None:
    row = plans.table_cells(path)
    assert "does not fit" not in " ".join(row)


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_every_tuning_of_a_published_model_fits_the_gpu_that_it_names(path: Path, tmp_path: Path) -> None:
    size = path.stem.split("-")[1]
    config_tree = config.validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    config_tree["models"]["published"]["path"] = str(write_headers(tmp_path, size))
    config_tree["pretrain"]["plan"]["gpu"] = plans.gpu_of(path)
    check_published_uses(config_tree)
    assert "one H100 of 80 GB" in path.read_text(encoding="utf-8").splitlines()[0]
    shape = tuning.published_shape(config_tree, "published")
    for step in TUNING_STEPS:
        for model in models_made_by(config_tree, step):
            needed = sum(tuning.tuning_of(config_tree, step, model, shape).memory_parts(True).values())
            assert needed < TIGHT * 80e9
