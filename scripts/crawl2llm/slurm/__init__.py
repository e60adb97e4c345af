"""The workflow on a SLURM cluster: its executor, what happens before the first job is submitted, and its queue."""
