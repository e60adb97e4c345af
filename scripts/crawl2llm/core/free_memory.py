"""How much memory processes can still take: of a SLURM job or a container, less than the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
LIMITS = (  # (limit, used, before the names in memory.stat) of cgroup v2 and v1
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
# The page cache that can be given back; active: files that were read twice.
CACHE_KEYS = ("inactive_file", "active_file")


def memory_groups(root: Path = CGROUPS, cgroup_file: Path = OWN_CGROUP) -> Iterator[list[Path]]:
    """The folders of this process's control group of memory and of those above it, its own first, for each version there is.

    Inside a container the group's own name may not be below its root: the root is the group then, and the last folder.
    """
    for line in cgroup_file.read_text(encoding="utf-8").splitlines() if cgroup_file.is_file() else []:
        _, names, name = line.split(":", 2)
        if names and "memory" not in names.split(","):
            continue
        base = root / "memory" if names else root
        group = base / name.lstrip("/")
        yield [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]


def available_bytes(root: Path = CGROUPS, cgroup_file: Path = OWN_CGROUP, machine: Path = Path("/proc/meminfo")) -> int:
    """Bytes that processes of this machine can still take: what is free, or left below the limit of a control group.

    A limit of any group above this process counts, of version 1 and 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    """
    lines = machine.read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min([free, *_cgroup_free_bytes(root, cgroup_file)])


def _cgroup_free_bytes(root: Path, cgroup_file: Path) -> Iterator[int]:
    for folders in memory_groups(root, cgroup_file):
        for folder in folders:
            for limit, usage_name, prefix in LIMITS:
                try:
                    limit_bytes = int((folder / limit).read_text(encoding="utf-8"))
                    used_bytes = int((folder / usage_name).read_text(encoding="utf-8"))
                    facts = dict(
                        row.split() for row in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
                    )
                except (OSError, ValueError):  # no such file, or `max`
                    continue
                yield limit_bytes - used_bytes + sum(int(facts.get(prefix + name, 0)) for name in CACHE_KEYS)
