"""One process of gpu-check, of one GPU: runs checks one after the other, and process 0 writes each line to a file as it comes.

RANK=0 LOCAL_RANK=0 … python -m crawl2llm.commands.gpu_check.worker FILE PLACE CHECK… (PLACE: fields of Place as JSON)
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, TextIO

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check.checks import CHECKS, function_of
from crawl2llm.commands.gpu_check.lines import WRONG, Line
from crawl2llm.commands.gpu_check.place import Place, host_group
from crawl2llm.training import group


def main(argv: list[str]) -> NoReturn:
    """Run the checks, and end with 0 if all came to an end, whatever they say."""
    events, described, *names = argv
    fields = json.loads(described)
    warnings.simplefilter("ignore")
    device = group.choose_device_alone("auto", 1, "gpu-check")
    os.environ["DS_ACCELERATOR"] = device.type  # as group.join_group
    torch.set_num_threads(max(1, torch.get_num_threads() // int(os.environ["WORLD_SIZE"])))
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=5), device_id=device if device.type == "cuda" else None)
    host_group()
    peers = {name: Path(path) for name, path in fields["peers"].items()}
    place = Place(device, fields["tiny"], Path(fields["folder"]), Path(fields["scratch"]), peers)
    with Path(events).open("a", encoding="utf-8") as handle:
        for name in names:
            _run_check(name, place, handle)
    sys.stdout.flush()
    os._exit(0)  # the group's own end takes seconds, and with DeepSpeed does not come


def _run_check(name: str, place: Place, handle: TextIO) -> None:
    """One check; an exception in it is a line, and the next check goes on."""
    _write(handle, begin=name)
    gc.collect()
    if place.on_gpu:
        torch.cuda.empty_cache()  # what the check before held
    try:
        for line in function_of(CHECKS[name])(place):
            _write(handle, line=line.as_json())
    except Exception as error:
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        line = Line(name, "the check itself", verdict=WRONG, note=f"{type(error).__name__}: {text[0][:300]}")
        _write(handle, line=line.as_json())
    _write(handle, end=name)


def _write(handle: TextIO, **event: object) -> None:
    if dist.get_rank() == 0:
        handle.write(json.dumps(event) + "\n")
        handle.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
