"""What reading a remote file may end with."""

from __future__ import annotations


class TransferError(Exception):
    """A file that cannot be read to its end, or is not what it was; the message names its URL. No OSError: it is no damage of a file."""


class MissingError(TransferError):
    """A file that cannot be had at all."""
