"""language.labels beside the real model."""

import pytest

from scripts.language import labels
from scripts.language.score import BUNDLED, Identifier, model_path
from scripts.workflow.config import validate
from scripts.workflow.errors import InputError


def test_they_are_the_labels_of_the_bundled_model() -> None:
    assert labels.BUNDLED == BUNDLED
    found = Identifier(model_path(BUNDLED)).model.get_labels()
    assert {label.removeprefix("__label__") for label in found} == set(labels.LID_176.split())


def test_a_language_that_is_never_found_is_refused() -> None:
    labels.check(validate({"language": {"select": {"languages": ["en", "no"]}}})["language"])
    with pytest.raises(InputError, match=r"languages has 'EN', which the model .* never finds: do you mean 'en'"):
        labels.check(validate({"language": {"select": {"languages": ["de", "EN"]}}})["language"])
    own = {"score": {"model": "own.bin"}, "select": {"languages": ["eng_Latn"]}}
    labels.check(validate({"language": own})["language"])
