"""known_labels beside the real model."""

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.core.errors import InputError
from crawl2llm.filters.language import known_labels
from crawl2llm.formats.language_identifier import BUNDLED, Identifier, model_path


def test_they_are_the_labels_of_the_bundled_model() -> None:
    assert known_labels.BUNDLED == BUNDLED
    found = Identifier(model_path(BUNDLED)).model.get_labels()
    assert {label.removeprefix("__label__") for label in found} == set(known_labels.LID_176.split())


def test_a_language_that_is_never_found_is_refused() -> None:
    known_labels.check_language_filter(validate({"language": {"select": {"languages": ["en", "no"]}}})["language"])
    with pytest.raises(InputError, match=r"languages has 'EN', which the model .* never finds: do you mean 'en'"):
        known_labels.check_language_filter(validate({"language": {"select": {"languages": ["de", "EN"]}}})["language"])
    own = {"score": {"model": "own.bin"}, "select": {"languages": ["eng_Latn"]}}
    known_labels.check_language_filter(validate({"language": own})["language"])
