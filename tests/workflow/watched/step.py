"""A task that ends in a chosen way: python step.py STEP TASK HOW MANIFEST LOG, with the project's own console and signals."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from crawl2llm.core.console import log, set_up_logging
from crawl2llm.training.processes import RESUBMIT, on_stop_signal

stopping: list[int] = []
step, task, how, manifest, file = sys.argv[1:]
set_up_logging(f"{step} {task}".rstrip(), Path(file))
print("a library's own words on stdout", flush=True)
log.info("12/40 documents, 3.0/s, 9s left")
if how == "warn":
    log.warning("one file is odd")
    log.warning("one file is odd")
elif how == "error":
    log.error("error: the file %s.warc.gz is no archive\nwrite another", task)
    sys.exit(1)
elif how == "exception":
    raise ZeroDivisionError("nothing to divide by")
elif how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "memory":
    bytearray(b"x" * 10**9)
elif how == "silent":
    sys.exit(3)
elif how == "seconds":  # long enough to be drawn several times
    time.sleep(3)
elif how == "training":  # as one ends that is told to
    on_stop_signal(lambda number, _: stopping.append(number))
    end = time.monotonic() + 1000
    while not stopping and time.monotonic() < end:
        time.sleep(0.1)
    log.info("stopped by a signal after step 36; the checkpoint is in checkpoints/a")
    sys.exit(RESUBMIT)
elif how == "slow":
    time.sleep(1000)
Path(manifest).write_text(json.dumps({"counts": {"in": 10, "kept": 8, "dropped": {"language": 2}}}))
