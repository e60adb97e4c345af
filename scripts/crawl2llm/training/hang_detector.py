"""Which process of a training hangs, and where it is: found by the launchers from what processes write (training/heartbeat.py).

Where nothing moves any more, those that wait have begun a collective call that the one that hangs has not (PyTorch's flight recorder
compares the same number: docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html). A process that is stopped writes no beat at
all. The launcher of its node has it write its stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crawl2llm.training.heartbeat import BEAT_SECONDS, FOLDER_VARIABLE, LONGEST_SILENCE

WAIT_SHARE = 0.9  # of the time that a process waits for the others, after which it is looked for who hangs: before all of them give up
STACK_SECONDS = 5.0  # seconds for a process to write its stack
ANSWER_SECONDS = 30.0  # seconds for the launcher of another node to say what its process does
STATES = {
    "T": "it is stopped (SIGSTOP)",
    "t": "a debugger has stopped it",
    "D": "it waits for a disk or a network file system",
}


class Beat:
    """What a launcher knows of one process. `moved_at`, `heard_at`: when it last got further, and last wrote, by the launcher's clock."""

    def __init__(self, now: float) -> None:
        self.fields: dict[str, Any] = {}
        self.moved_at = self.heard_at = now

    def record_beat(self, fields: dict[str, Any], now: float) -> None:
        """Take a beat that was read."""
        if fields["number"] != self.fields.get("number"):
            self.heard_at = now
        if any(fields[key] != self.fields.get(key) for key in ("step", "phase", "calls", "limit")):
            self.moved_at = now
        self.fields = fields

    @property
    def hang_limit(self) -> float:
        """Seconds after which this process counts as hanging, where others wait for it."""
        return seconds_before_look(self.fields["limit"] or float("inf"))


def _remove_stale_folders(folder: Path) -> None:
    """Remove the folders of launchers that were killed: those beside this one whose processes have long written nothing."""
    now = folder.stat().st_mtime  # by the clock of the file system that wrote the others
    for sibling in folder.parent.glob(f"{folder.name.split('-')[0]}-*"):
        with contextlib.suppress(OSError):  # another launcher removes it, too
            if now - max(path.stat().st_mtime for path in (sibling, *sibling.iterdir())) > LONGEST_SILENCE:
                shutil.rmtree(sibling)


def seconds_before_look(seconds: float) -> float:
    """When to look who hangs, where all give up after `seconds`: a beat is read up to two BEAT_SECONDS after what it tells."""
    return min(WAIT_SHARE * seconds, seconds - 4 * BEAT_SECONDS)


def ranks_behind(beats: Mapping[str, Beat]) -> list[str]:
    """The ranks that have begun fewer collective calls than another in a group of both, and in no group more."""
    calls = {rank: beat.fields["calls"] for rank, beat in beats.items() if beat.fields}
    less, more = set(), set()
    for rank, own_calls in calls.items():
        for other_calls in calls.values():
            for group in own_calls.keys() & other_calls.keys():
                if own_calls[group] < other_calls[group]:
                    less.add(rank)
                elif own_calls[group] > other_calls[group]:
                    more.add(rank)
    return sorted(less - more, key=int)


class Watch:
    """Looks, for the launcher of a node, whether one of the training's processes hangs.

    folder: that of the beats. own_ranks: those of this node. world: processes of all nodes.
    """

    def __init__(self, folder: Path, own_ranks: list[str], world: int) -> None:
        self.folder, self.own_ranks, self.world = folder, own_ranks, world
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale_folders(folder)
        for rank in own_ranks:  # of an earlier attempt
            for name in (rank, f"{rank}.stack", f"{rank}.hangs"):
                (folder / name).unlink(missing_ok=True)
        self.beats: dict[str, Beat] = {}
        self.looked_at = time.monotonic()
        self.suspected_at = 0.0  # when another node's process was first found to hang

    def find_hang(self) -> tuple[str, str] | None:
        """(what hangs, its stack or "") where a process does; None otherwise. Reads at most once in BEAT_SECONDS seconds."""
        now = time.monotonic()
        if now - self.looked_at < BEAT_SECONDS:
            return None
        if now - self.looked_at > 10 * BEAT_SECONDS:  # this launcher was stopped itself, and its processes with it
            for beat in self.beats.values():
                beat.moved_at = beat.heard_at = now
        self.looked_at = now
        for rank in map(str, range(self.world)):
            with contextlib.suppress(OSError, ValueError):  # none yet, or half written
                fields = json.loads((self.folder / rank).read_text())
                self.beats.setdefault(rank, Beat(now)).record_beat(fields, now)
        if not self.beats:
            return None
        still = now - max(beat.moved_at for beat in self.beats.values())
        hanging = [rank for rank in ranks_behind(self.beats) if still > self.beats[rank].hang_limit]
        silence = seconds_before_look(min(beat.fields["least"] for beat in self.beats.values()))
        hanging += [rank for rank, beat in self.beats.items() if now - beat.heard_at > silence and rank not in hanging]
        if not hanging:
            return None
        mine = [rank for rank in hanging if rank in self.own_ranks]
        return self._explain_hang(mine, still) if mine else self._hang_elsewhere(hanging, still)

    def _explain_hang(self, ranks: list[str], still: float) -> tuple[str, str]:
        """The message and the stacks of processes of this node; other nodes' launchers find them in the folder."""
        lines, stacks = [], []
        for rank in ranks:
            state, stack = _read_stack(self.beats[rank].fields, self.folder / f"{rank}.stack", rank, str(self.folder))
            lines.append(self._hang_line(rank, still) + (f"; {STATES[state]}" if state in STATES else ""))
            stacks += [
                f"where rank {rank} is"
                + (" (most recent call first):" if stack else f": it did not say within {STACK_SECONDS:.0f} s"),
                *stack,
            ]
        message = f"{'; '.join(lines)}. All processes: {self._processes_text()}"
        for rank in ranks:
            (self.folder / f"{rank}.hangs").write_text(message)
        return message, "\n".join(stacks)

    def _hang_elsewhere(self, ranks: list[str], still: float) -> tuple[str, str] | None:
        """The same of another node's, once its launcher has found it, or did not in ANSWER seconds."""
        if report := self.reported_hang():
            return report
        self.suspected_at = self.suspected_at or time.monotonic()
        if time.monotonic() - self.suspected_at < ANSWER_SECONDS:
            return None
        lines = "; ".join(self._hang_line(rank, still) for rank in ranks)
        return f"{lines}; the launcher of its node does not answer. All processes: {self._processes_text()}", ""

    def reported_hang(self) -> tuple[str, str] | None:
        """What the launcher of another node has found; its processes' end makes those of this node fail."""
        for path in sorted(self.folder.glob("*.hangs")):
            with contextlib.suppress(OSError):
                if path.stem not in self.own_ranks and (report := path.read_text()):
                    return f"ended, since {report}", ""
        return None

    def _hang_line(self, rank: str, still: float) -> str:
        fields = self.beats[rank].fields
        return (
            f"rank {rank} (of {self.world} processes, on {fields['node']}, process id {fields['pid']}) hangs in step {fields['step']:,} "
            f"({fields['phase']}): the others have waited for it for {still:.0f} s"
            if self.world > 1
            else f"the program (process id {fields['pid']}) hangs in step {fields['step']:,} ({fields['phase']})"
        )

    def _processes_text(self) -> str:
        return ", ".join(
            f"rank {rank} on {beat.fields['node']} in step {beat.fields['step']:,} ({beat.fields['phase']}, "
            f"{sum(beat.fields['calls'].values()):,} collective calls)"
            for rank, beat in sorted(self.beats.items(), key=lambda item: int(item[0]))
        )

    def close(self) -> None:
        """Remove what this node's processes wrote, and the folder after the last."""
        with contextlib.suppress(OSError):
            for rank in self.own_ranks:
                names = [rank, f"{rank}.stack"]
                if len(self.own_ranks) == self.world:  # other nodes' launchers may not have read it yet
                    names.append(f"{rank}.hangs")
                for name in names:
                    (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()


def _read_stack(fields: dict[str, Any], path: Path, rank: str, folder: str) -> tuple[str, list[str]]:
    """(state of a process of this node as in proc(5), "" for none; the lines of its main thread's stack, [] where it wrote none).

    A stopped process is continued for it: the launcher ends it next.
    """
    pid = fields["pid"]
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "", []
    if not {f"{FOLDER_VARIABLE}={folder}".encode(), f"RANK={rank}".encode()} <= set(variables):
        return "", []  # in an image with process ids of its own, this is another
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGUSR2)
        os.kill(pid, signal.SIGCONT)
        lines: list[str] = []
        end = time.monotonic() + STACK_SECONDS
        while time.monotonic() < end and not (
            lines and lines[-1].endswith(f" in {fields['outermost']}")
        ):  # half written
            time.sleep(0.2)
            lines = list(_thread_frames(path.read_text().splitlines(), fields["main"]))
        return state, lines
    return state, []


def _thread_frames(lines: list[str], ident: int) -> Iterator[str]:
    """The frames of one thread in a dump of faulthandler."""
    inside = False
    for line in lines:
        if line.lstrip() == line:
            inside = f"0x{ident:016x}" in line
        elif inside:
            yield line
