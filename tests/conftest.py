"""Settings of all tests, and the run that several of them start from."""

from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine takes longer for an example than hypothesis allows; that is no failure of what is tested.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny run of the whole workflow is complete. Tests must leave it as it is.

    It was made without a network, where this machine lets one try.
    """
    from tests.workflow.conftest import can_be_alone, run

    folder = tmp_path_factory.mktemp("complete")
    run(folder, network=not can_be_alone())
    return folder
