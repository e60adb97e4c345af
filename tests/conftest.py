"""Settings of all tests."""

from hypothesis import settings

# A busy machine takes longer for an example than hypothesis allows; that is no failure of what is tested.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
