"""The settings of no stage: what the run is made of, `data`, `variants`, `sweep`, `filters` and `models`."""

from typing import Annotated, Any

from pydantic import ConfigDict

from crawl2llm.chain.model_registry import EXPORT_STEP, MAKERS, PUBLISHED_STEP
from crawl2llm.chain.stage_names import KNOWN_FILTERS
from crawl2llm.core.setting_types import Seed
from crawl2llm.core.settings import Allowed, NonEmpty, Number, Settings, optional, section, setting

FilterName = Annotated[str, Allowed(choices=KNOWN_FILTERS)]


class NumberRange(Settings):
    """Numbers to draw from: `log`: uniform in the logarithm; `integer`: whole."""

    low: Number = setting()
    high: Number = setting()
    log: bool | None = optional()
    integer: bool | None = optional()


class SweepRandom(Settings):
    """Settings drawn at random."""

    count: int = setting(0, "How many random settings.", ge=0, le=10000, placement=True)
    seed: Seed = setting(0, "Another seed draws others.", placement=True)
    keys: dict[
        str,
        Annotated[
            Annotated[list[Any], Allowed(min_length=1)] | NumberRange,
            Allowed(form="a list of values, or {low, high} with numbers, and perhaps log or integer"),
        ],
    ] = setting(
        {},
        "Keys with a list, of which one value is drawn, or with `low`, `high`, and perhaps `log: true` (uniform "
        "in the logarithm) and `integer: true`.",
        placement=True,
    )


class SweepHalving(Settings):
    """Successive halving (arXiv:1502.07943): the trainings of all variants are judged at rungs, shares of their steps, by bits
    per byte of the validation documents, and the best go on. Main always does. See docs/sweep.md.
    """

    rungs: list[Annotated[Number, Allowed(gt=0, lt=1)]] = setting(
        [],
        "Shares of a training's steps, rising, such as [0.25, 0.5]. None: every training goes to its end.",
        max_length=8,
        unique=True,
        placement=True,
    )
    keep: Number = setting(
        0.5,
        "Share of the settings that goes on at each rung, rounded up; the seeds of a setting are judged together.",
        gt=0,
        lt=1,
        placement=True,
    )
    contenders: dict[str, dict[str, Any]] | None = setting(
        None, "Written by the run itself: the settings of pretrain.train of each variant.", placement=True
    )


class SweepSettings(Settings):
    """Variants by lists of values instead of one by one: each setting of `grid`, `random`, `leave_one_out`, `mixes` and
    `sizes` is a variant, and all of them are repeated with other seeds. Keys are dotted, as pretrain.train.learning_rate.
    See docs/sweep.md.
    """

    grid: dict[str, Annotated[list[Any], Allowed(min_length=1)]] = setting(
        {}, "Keys and the values of each: every combination.", placement=True
    )
    random: SweepRandom = section()
    leave_one_out: list[NonEmpty] = setting(
        [],
        "Keys of lists: one variant without each part. `filters`, `sources` (ingest.extract.sources), "
        "`heuristics.select.families` and others.",
        unique=True,
        placement=True,
    )
    mixes: list[Annotated[dict[str, Annotated[Number, Allowed(ge=0)]], Allowed(min_length=1)]] = setting(
        [],
        "Shares of the training's tokens by group, as `pretrain.mix.phases.shares`; each is a variant with one phase.",
        placement=True,
    )
    sizes: list[Annotated[dict[str, Any], Allowed(min_length=1)]] = setting(
        [],
        "Settings of several keys together, such as the model's size with its tokens, for a scaling law.",
        placement=True,
    )
    seeds: int = setting(
        1,
        "How often each setting, the main run's too, is trained, with another seed each time: for the noise.",
        ge=1,
        le=1000,
        placement=True,
    )
    seed_keys: list[NonEmpty] = setting(
        ["pretrain.train.seed"], "Keys that are counted up for `seeds`.", min_length=1, unique=True, placement=True
    )
    halving: SweepHalving = section()
    most: int = setting(
        32,
        "Most variants of the sweep: more are refused, so that no sweep is larger than intended.",
        ge=1,
        le=10000,
        placement=True,
    )


class ModelEntry(Settings):
    """A model: the model that it is made from, the step that makes it, and keys of that step's section for it alone; of a published one
    these keys alone.
    """

    # Beside these two, the keys of the step's own section (chain/settings_registry.py).
    model_config = ConfigDict(extra="allow")

    from_: str | None = setting(None, alias="from")
    step: str = setting(PUBLISHED_STEP, choices=(*MAKERS[1:], EXPORT_STEP))


class RunSettings(Settings):
    """The keys and sections of a config that are of no stage."""

    data: NonEmpty = setting(
        ".",
        "Folder that `{data}` means in the paths of sources and in every key that names files (what the "
        "files hold is tracked, not where they lie).",
        placement=True,
    )
    variants: dict[
        Annotated[
            str,
            Allowed(
                pattern="^(?!main$)[a-z][a-z0-9_-]*$",
                form="names of small letters, digits, _ and -, a letter first, and not main, which is the run itself",
            ),
        ],
        dict[str, Any],
    ] = setting(
        {},
        "Named overlays of this config, for ablations and sweeps. Each materialises only the steps that differ "
        "from the main run.",
        placement=True,
    )
    sweep: SweepSettings = section()
    plugins: list[NonEmpty] = setting(
        [],
        "Filters that are not part of this project: folders of Python files, or names of installed packages, each with a "
        "file `<filter>.py` for a filter. They run as your own code does. See docs/filters/plugins.md.",
        unique=True,
        placement=True,
    )
    filters: list[FilterName] = setting(
        ["language", "heuristics", "dedup", "quality", "decontaminate"],
        "The filters that the run uses, in their order. Each judges the documents that those before it kept, "
        "with their texts as those before it edited them. A filter that is left out does not run; multilingual, "
        "heuristics, toxicity and pii need language before them. Filters that the default does not list are off "
        "by default. `decontaminate` runs only if public tasks or files of its own are named; a config that "
        "names public tasks has to list it.",
        unique=True,
    )
    models: dict[
        Annotated[
            str,
            Allowed(
                pattern="^(?!(base|untrained)$)[a-z][a-z0-9_-]*$",
                form="names of small letters, digits, _ and -, a letter first, and neither base, which is the pre-trained "
                "model, nor untrained, which is one of its shape with random weights",
            ),
        ],
        ModelEntry | None,
    ] = setting(
        {"sft": {"from": "base", "step": "finetune.train"}},
        "The models that are made from others, by name; each is evaluated, but for reward models and exports. "
        "`from`: the model that it is made from, `base` (the one that pretrain.train makes) or another of "
        "these. `step`: what makes it, `pretrain.continue`, `finetune.train`, `align.reward`, `align.train`, `compress.prune`, "
        "`compress.distil`, `compress.merge` or `compress.quantize`; an entry of `compress.export` is no model, but files "
        "of one. Any key of that "
        "step's own section holds for this model alone, as in `{from: sft, step: finetune.train, learning_rate: "
        "0.0001}`. null in an overlay removes a model; `{}` is no model but `base`.",
    )
