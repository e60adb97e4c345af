"""The workflow on a SLURM cluster: what happens before the first job is submitted, and what `make status` shows."""
