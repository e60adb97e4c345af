"""Tracks for lines that must not lie on each other, such as all lines between two rows of a picture."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tracks:
    """Lines that must not lie on each other, such as all in one gutter; the lines of one box are one."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, source: str, *ends: float) -> None:
        """Make the line of a box's edges as long as these ends need."""
        all_ends = [*self.spans.get(source, ()), *ends]
        self.spans[source] = min(all_ends), max(all_ends)

    def number_tracks(self) -> dict[str, int]:
        """Box → the number of its track: each the first that is free, from one end to the other (the left-edge algorithm)."""
        free: list[float] = []  # where the last line of each track ends
        numbers = {}
        for source, (begin, end) in sorted(self.spans.items(), key=lambda item: (item[1], item[0])):
            number = next((number for number, last in enumerate(free) if last < begin), len(free))
            free[number : number + 1] = [end]
            numbers[source] = number
        return numbers
