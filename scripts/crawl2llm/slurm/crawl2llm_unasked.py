"""What Snakemake imports at each start and a run does not need comes when it is needed, in every Python of an environment.

Snakemake imports all executors, whichever a run has, and that of SLURM (2.8.0) asks `scontrol show config` then, for the help of one
option: it waits 10 s for a controller that is down. It also imports pandas, for a report that only `--slurm-efficiency-report` writes.
Snakemake opens source files by smart_open, which imports requests and the libraries of every cloud that are installed, also for a local
path. Both take half of the time in which Snakemake starts, and it starts in each job.

`make install` puts this file and `crawl2llm_unasked.pth`, which imports it at each start of Python, into the environment. It needs the
standard library alone, and imports none of it before the executor: every start of Python waits.
"""

# mypy: allow-untyped-defs

import sys


def execute_without_scontrol(module, execute):
    """Import the executor without an answer from `scontrol`, so that its help recommends less, and without its report and pandas."""
    import subprocess
    from importlib import import_module

    check_output = subprocess.check_output
    report = f"{module.__name__}.efficiency_report"

    def refuse_scontrol(command, *args, **more):
        if command and command[0] == "scontrol":
            raise subprocess.CalledProcessError(1, command)
        return check_output(command, *args, **more)

    def create_efficiency_report(*args, **more):
        return import_module(report).create_efficiency_report(*args, **more)

    subprocess.check_output = refuse_scontrol
    sys.modules[report] = late = type(sys)(report)
    late.create_efficiency_report = create_efficiency_report
    try:
        execute(module)
    finally:
        subprocess.check_output = check_output
        del sys.modules[report]


def execute_without_clouds(module, execute):
    """Import smart_open.transport with local files alone: others are registered when a path first names another place."""
    import importlib

    late, import_module = [], importlib.import_module

    def import_later(name, *args):
        if not name.startswith("smart_open."):
            return import_module(name, *args)
        late.append(name)
        raise ImportError(name)  # register_transport leaves out what cannot be imported

    importlib.import_module = import_later
    try:
        execute(module)
    finally:
        importlib.import_module = import_module
    get_transport = module.get_transport

    def get_transport_of_all(scheme):
        if late and scheme not in module._REGISTRY:
            for name in late:
                module.register_transport(name)
            late.clear()
            module.SUPPORTED_SCHEMES = tuple(sorted(module._REGISTRY))
        return get_transport(scheme)

    module.get_transport = get_transport_of_all


EXECUTE = {
    "snakemake_executor_plugin_slurm": execute_without_scontrol,
    "smart_open.transport": execute_without_clouds,
}


class Finder:
    """Finds the modules of EXECUTE and no others."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """The module's spec as Python finds it, with a loader that leaves something for later; None for any other module."""
        if name not in EXECUTE:
            return None
        from functools import partial
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        spec.loader.exec_module = partial(EXECUTE[name], execute=spec.loader.exec_module)
        return spec


sys.meta_path.insert(0, Finder)
