#!/bin/bash
# A busy SLURM controller, for the tests: linked under the names of SLURM's commands into a folder that comes first in PATH.
# BUSY_PERCENT: calls of a hundred that fail unheard. BUSY_HANG: seconds for which such a call hangs first.
# BUSY_LOST: submissions of a hundred that arrive, and whose answer is lost; BUSY_LATE: seconds after which they arrive.
# BUSY_SILENT: while this file exists, every call fails. BUSY_LOG: a file that gets a line for each call that went wrong.
# Which calls go wrong depends on how many there were, not on chance: a test that waits for one meets it.
name=$(basename "$0")
printf . >>"$BUSY_LOG.$name"
number=$(stat -c %s "$BUSY_LOG.$name")
if [ -e "${BUSY_SILENT:-/nonexistent}" ] || [ $((number * ${BUSY_PERCENT:-0} % 100)) -lt "${BUSY_PERCENT:-0}" ]; then
  echo "$(date +%T) failed $name $*" >>"$BUSY_LOG"
  sleep "${BUSY_HANG:-0}"
  echo "$name: error: Unable to contact slurm controller (connect failure)" >&2
  exit 1
fi
if [ "$name" = sbatch ] && [ $(((number + 3) * ${BUSY_LOST:-0} % 100)) -lt "${BUSY_LOST:-0}" ]; then
  echo "$(date +%T) lost $name $*" >>"$BUSY_LOG"
  if [ -n "$BUSY_LATE" ]; then
    (sleep "$BUSY_LATE" && exec /usr/bin/sbatch "$@") </dev/null >/dev/null 2>&1 &
  else
    /usr/bin/sbatch "$@" >/dev/null
  fi
  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
  exit 1
fi
exec "/usr/bin/$name" "$@"
