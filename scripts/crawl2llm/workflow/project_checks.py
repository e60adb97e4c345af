"""What of a project can be refused before anything runs: every variant's config, and what variants must have in common."""

from __future__ import annotations

from crawl2llm.chain import fingerprint, halving, steps, sweep_errors
from crawl2llm.chain.project import Project
from crawl2llm.core import content_hash
from crawl2llm.core.errors import ConfigError, InputError
from crawl2llm.stages.tokenize.ready_checks import with_known_vocabulary
from crawl2llm.training import model_check
from crawl2llm.workflow import config_checks


def check_project(project: Project) -> None:
    """Refuse what can be refused before anything runs, and work out every fingerprint. Raises ConfigError or InputError."""
    check_configs(project)
    for name, config in project.variants.items():
        check_halving(name, project)
        for step in steps.used_steps(config):
            for task in steps.task_models(step, config):
                project.fingerprint(name, step, task)
    content_hash.save_cache()
    fingerprint.save_hashes()
    model_check.save_answers()


def check_configs(project: Project) -> None:
    """Refuse what can be refused without the files that keys name. Raises ConfigError or InputError."""
    model_check.prefetch_answers(map(with_known_vocabulary, project.variants.values()))
    for name, config in project.variants.items():
        try:
            config_checks.check_config(config, name)
        except (ConfigError, InputError) as error:
            if name == "main":
                raise
            kind = InputError if isinstance(error, InputError) else ConfigError
            raise kind(f"{sweep_errors.variant_label(project.variants['main'], name)}: {error}") from None


def check_halving(name: str, project: Project) -> None:
    """Raise ConfigError for a variant whose loss says nothing beside that of main: other text, another tokenizer, phases of a mix.

    What main has of rungs is then that of every variant, and is not worked out for each again.
    """
    config = project.variants[name]
    if not halving.is_used(config):
        return
    main, rungs = project.variants["main"], config["sweep"]["halving"]["rungs"]
    if rungs != sorted(rungs):
        raise ConfigError(f"sweep.halving.rungs is {rungs}: the shares do not rise")
    if config["pretrain"]["mix"]["phases"]:
        raise ConfigError(
            f"sweep.halving.rungs is {rungs}, and {name} has pretrain.mix.phases: trainings with phases are not "
            "judged at rungs; set sweep.halving.rungs to []"
        )
    for step in ("tokenize.train", "tokenize.encode"):
        if project.step_folder(name, step) != project.step_folder("main", step):
            raise ConfigError(
                f"sweep.halving.rungs is {rungs}, and the variant {name} has another {step} than main: losses "
                "on other text or of another tokenizer do not compare. Take it out of this config, or set sweep.halving.rungs to []"
            )
    if main["pretrain"]["train"]["validation_tokens"] != config["pretrain"]["train"]["validation_tokens"]:
        raise ConfigError(
            f"sweep.halving.rungs is {rungs}, and the variant {name} has other "
            "pretrain.train.validation_tokens than main: losses on other documents do not compare"
        )
    mine, whole = (project.fingerprints[each] for each in (name, "main"))
    for task in [*steps.task_models(steps.RUNG, main)] if name != "main" else []:
        mine[f"{steps.RUNG} {task}"] = whole.get(f"{steps.RUNG} {task}") or project.fingerprint(
            "main", steps.RUNG, task
        )
