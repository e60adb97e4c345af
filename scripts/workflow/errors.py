"""The error for input that a step cannot work with: a module of its own, since nearly all others raise it."""

from __future__ import annotations


class InputError(ValueError):
    """Input that a step cannot work with; the message names the file, the key or the value, and what is allowed."""
