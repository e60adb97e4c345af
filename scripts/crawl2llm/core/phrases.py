"""Lists of names in messages: with commas, of many the first."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def and_more(names: Iterable[str], most: int, noun: str = "") -> str:
    """`a, b, c and 5 more`: the first `most` names, and how many more there are. noun: what these are, such as `variants`."""
    first, more = _split_names(names, most)
    return " ".join(filter(None, [first, f"and {more:,} more", noun])) if more else first


def first_few(names: Iterable[str], most: int) -> str:
    """`a, b, c, …`: the first `most` names, and a sign that there are more."""
    first, more = _split_names(names, most)
    return f"{first}, …" if more else first


def join_with_and(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def list_sentence(start: str, names: Collection[str]) -> list[str]:
    """`<start>: <names>.`; no sentence without names."""
    return [f"{start}: {', '.join(names)}."] if names else []


def _split_names(names: Iterable[str], most: int) -> tuple[str, int]:
    """The first names with commas, and the number of the others."""
    all_names = list(names)
    return ", ".join(all_names[:most]), max(0, len(all_names) - most)
