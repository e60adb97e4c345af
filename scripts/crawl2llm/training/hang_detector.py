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

from crawl2llm.training.heartbeat import ALWAYS, EVERY, FOLDER

SHARE = 0.9  # of the time that a process waits for the others, after which it is looked for who hangs: before all of them give up
STACK = 5.0  # seconds for a process to write its stack
ANSWER = 30.0  # seconds for the launcher of another node to say what its process does
STATES = {
    "T": "it is stopped (SIGSTOP)",
    "t": "a debugger has stopped it",
    "D": "it waits for a disk or a network file system",
}


class Beat:
    """What a launcher knows of one process. `moved` and `heard`: when it last got further, and last wrote, by the launcher's clock."""

    def __init__(self, now: float) -> None:
        self.said: dict[str, Any] = {}
        self.moved = self.heard = now

    def hear(self, said: dict[str, Any], now: float) -> None:
        """Take a beat that was read."""
        if said["number"] != self.said.get("number"):
            self.heard = now
        if any(said[key] != self.said.get(key) for key in ("step", "phase", "calls", "limit")):
            self.moved = now
        self.said = said

    @property
    def limit(self) -> float:
        """Seconds after which this process counts as hanging, where others wait for it."""
        return before(self.said["limit"] or float("inf"))


def _tidy(folder: Path) -> None:
    """Remove the folders of launchers that were killed: those beside this one whose processes have long written nothing."""
    now = folder.stat().st_mtime  # by the clock of the file system that wrote the others
    for other in folder.parent.glob(f"{folder.name.split('-')[0]}-*"):
        with contextlib.suppress(OSError):  # another launcher removes it, too
            if now - max(path.stat().st_mtime for path in (other, *other.iterdir())) > ALWAYS:
                shutil.rmtree(other)


def before(seconds: float) -> float:
    """When to look who hangs, where all give up after `seconds`: a beat is read up to two EVERY after what it tells."""
    return min(SHARE * seconds, seconds - 4 * EVERY)


def behind(beats: Mapping[str, Beat]) -> list[str]:
    """The ranks that have begun fewer collective calls than another in a group of both, and in no group more."""
    calls = {rank: beat.said["calls"] for rank, beat in beats.items() if beat.said}
    less, more = set(), set()
    for rank, own in calls.items():
        for other in calls.values():
            for group in own.keys() & other.keys():
                if own[group] < other[group]:
                    less.add(rank)
                elif own[group] > other[group]:
                    more.add(rank)
    return sorted(less - more, key=int)


class Watch:
    """Looks, for the launcher of a node, whether one of the training's processes hangs.

    folder: that of the beats. own: the ranks of this node. world: processes of all nodes.
    """

    def __init__(self, folder: Path, own: list[str], world: int) -> None:
        self.folder, self.own, self.world = folder, own, world
        folder.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        for rank in own:  # of an earlier attempt
            for name in (rank, f"{rank}.stack", f"{rank}.hangs"):
                (folder / name).unlink(missing_ok=True)
        self.beats: dict[str, Beat] = {}
        self.looked = time.monotonic()
        self.suspected = 0.0  # when another node's process was first found to hang

    def look(self) -> tuple[str, str] | None:
        """(what hangs, its stack or "") where a process does; None otherwise. Reads at most once in EVERY seconds."""
        now = time.monotonic()
        if now - self.looked < EVERY:
            return None
        if now - self.looked > 10 * EVERY:  # this launcher was stopped itself, and its processes with it
            for beat in self.beats.values():
                beat.moved = beat.heard = now
        self.looked = now
        for rank in map(str, range(self.world)):
            with contextlib.suppress(OSError, ValueError):  # none yet, or half written
                said = json.loads((self.folder / rank).read_text())
                self.beats.setdefault(rank, Beat(now)).hear(said, now)
        if not self.beats:
            return None
        still = now - max(beat.moved for beat in self.beats.values())
        hanging = [rank for rank in behind(self.beats) if still > self.beats[rank].limit]
        silence = before(min(beat.said["least"] for beat in self.beats.values()))
        hanging += [rank for rank, beat in self.beats.items() if now - beat.heard > silence and rank not in hanging]
        if not hanging:
            return None
        mine = [rank for rank in hanging if rank in self.own]
        return self._explained(mine, still) if mine else self._elsewhere(hanging, still)

    def _explained(self, ranks: list[str], still: float) -> tuple[str, str]:
        """The message and the stacks of processes of this node; other nodes' launchers find them in the folder."""
        lines, stacks = [], []
        for rank in ranks:
            state, stack = _stack(self.beats[rank].said, self.folder / f"{rank}.stack", rank, str(self.folder))
            lines.append(self._line(rank, still) + (f"; {STATES[state]}" if state in STATES else ""))
            stacks += [
                f"where rank {rank} is"
                + (" (most recent call first):" if stack else f": it did not say within {STACK:.0f} s"),
                *stack,
            ]
        message = f"{'; '.join(lines)}. All processes: {self._everyone()}"
        for rank in ranks:
            (self.folder / f"{rank}.hangs").write_text(message)
        return message, "\n".join(stacks)

    def _elsewhere(self, ranks: list[str], still: float) -> tuple[str, str] | None:
        """The same of another node's, once its launcher has found it, or did not in ANSWER seconds."""
        if told := self.told():
            return told
        self.suspected = self.suspected or time.monotonic()
        if time.monotonic() - self.suspected < ANSWER:
            return None
        lines = "; ".join(self._line(rank, still) for rank in ranks)
        return f"{lines}; the launcher of its node does not answer. All processes: {self._everyone()}", ""

    def told(self) -> tuple[str, str] | None:
        """What the launcher of another node has found; its processes' end makes those of this node fail."""
        for path in sorted(self.folder.glob("*.hangs")):
            with contextlib.suppress(OSError):
                if path.stem not in self.own and (said := path.read_text()):
                    return f"ended, since {said}", ""
        return None

    def _line(self, rank: str, still: float) -> str:
        said = self.beats[rank].said
        return (
            f"rank {rank} (of {self.world} processes, on {said['node']}, process id {said['pid']}) hangs in step {said['step']:,} "
            f"({said['phase']}): the others have waited for it for {still:.0f} s"
            if self.world > 1
            else f"the program (process id {said['pid']}) hangs in step {said['step']:,} ({said['phase']})"
        )

    def _everyone(self) -> str:
        return ", ".join(
            f"rank {rank} on {beat.said['node']} in step {beat.said['step']:,} ({beat.said['phase']}, "
            f"{sum(beat.said['calls'].values()):,} collective calls)"
            for rank, beat in sorted(self.beats.items(), key=lambda item: int(item[0]))
        )

    def close(self) -> None:
        """Remove what this node's processes wrote, and the folder after the last."""
        with contextlib.suppress(OSError):
            for rank in self.own:
                names = [rank, f"{rank}.stack"]
                if len(self.own) == self.world:  # other nodes' launchers may not have read it yet
                    names.append(f"{rank}.hangs")
                for name in names:
                    (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()


def _stack(said: dict[str, Any], path: Path, rank: str, folder: str) -> tuple[str, list[str]]:
    """(state of a process of this node as in proc(5), "" for none; the lines of its main thread's stack, [] where it wrote none).

    A stopped process is continued for it: the launcher ends it next.
    """
    pid = said["pid"]
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "", []
    if not {f"{FOLDER}={folder}".encode(), f"RANK={rank}".encode()} <= set(variables):
        return "", []  # in an image with process ids of its own, this is another
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGUSR2)
        os.kill(pid, signal.SIGCONT)
        lines: list[str] = []
        end = time.monotonic() + STACK
        while time.monotonic() < end and not (lines and lines[-1].endswith(f" in {said['outermost']}")):  # half written
            time.sleep(0.2)
            lines = list(_thread(path.read_text().splitlines(), said["main"]))
        return state, lines
    return state, []


def _thread(lines: list[str], ident: int) -> Iterator[str]:
    """The frames of one thread in a dump of faulthandler."""
    inside = False
    for line in lines:
        if line.lstrip() == line:
            inside = f"0x{ident:016x}" in line
        elif inside:
            yield line
