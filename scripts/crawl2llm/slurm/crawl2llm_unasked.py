"""Imports SLURM's executor without the question that it asks a controller, and without pandas, in every Python of an environment.

Snakemake imports all executors, whichever a run has, and this one (2.8.0) asks `scontrol show config` then, for the help of one option: it
waits 10 s for a controller that is down. It also imports pandas, for a report that only `--slurm-efficiency-report` writes: a quarter of
the time that Snakemake takes to start, and it starts twice in each job.

`make install` puts this file and `crawl2llm_unasked.pth`, which imports it at each start of Python, into the environment. It needs the
standard library alone, and imports none of it before the executor: every start of Python waits.
"""

# mypy: allow-untyped-defs

import sys


class Finder:
    """Finds the executor, and no other module; its import gets no answer from `scontrol`: its help then recommends less."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """The executor's spec as Python finds it, with a loader that answers in the place of `scontrol`; None for any other module."""
        if name != "snakemake_executor_plugin_slurm":
            return None
        import subprocess
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute, check_output = spec.loader.exec_module, subprocess.check_output
        report = f"{name}.efficiency_report"

        def refuse_scontrol(command, *args, **more):
            if command and command[0] == "scontrol":
                raise subprocess.CalledProcessError(1, command)
            return check_output(command, *args, **more)

        def create_efficiency_report(*args, **more):
            from importlib import import_module

            return import_module(report).create_efficiency_report(*args, **more)

        def execute_unasked(module):
            subprocess.check_output = refuse_scontrol
            sys.modules[report] = late = type(sys)(report)
            late.create_efficiency_report = create_efficiency_report
            try:
                execute(module)
            finally:
                subprocess.check_output = check_output
                del sys.modules[report]

        spec.loader.exec_module = execute_unasked
        return spec


sys.meta_path.insert(0, Finder)
