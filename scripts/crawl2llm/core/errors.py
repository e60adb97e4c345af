"""The errors that are one line for the user: a module of its own, since nearly all others raise them."""

from __future__ import annotations


class NotBuiltError(ImportError):
    """The compiled part is not installed, or was built from another source; the message says what to do."""


class InputError(ValueError):
    """Input that a step cannot work with; the message names the file, the key or the value, and what is allowed."""


class ConfigError(ValueError):
    """A configuration that the schema refuses; the message names key, value and what is allowed."""
