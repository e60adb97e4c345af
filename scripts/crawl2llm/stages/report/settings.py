"""The settings of the stage report."""

from typing import Literal

from crawl2llm.core.setting_types import Seed
from crawl2llm.core.settings import NonEmpty, Number, Settings, section, setting


class WhatifSettings(Settings):
    """Counts documents that other thresholds of select steps would keep, from the existing scores."""

    points: int = setting(
        33,
        "Thresholds to evaluate for each rule, besides the current threshold if it is not among them; 0 disables the "
        "step.",
        ge=0,
        le=512,
    )


class RenderSettings(Settings):
    """Renders the page."""

    samples: int = setting(3, "Texts shown of kept documents, and of each reason to drop.", ge=0, le=100)
    sample_characters: int = setting(700, "Characters of a text that are shown.", ge=100, le=20000)
    seed: int = setting(0, "Seed of the choice of the texts.", ge=0)
    alarm_share: Number | None = setting(
        0.5,
        "The report names each source, and each host of 100 pages or more, that loses more than this share of "
        "its documents to one filter; null: none.",
        ge=0,
        lt=1,
        unless_default=True,
    )


class InspectSettings(Settings):
    """Pages on which a person marks documents that filters kept or dropped, one page per filter."""

    samples: int = setting(
        20,
        "Documents sampled per rule at random, and on each side of its threshold; kept documents: five times as many. "
        "0: no pages.",
        ge=0,
        le=100,
    )
    characters: int = setting(
        1500,
        "Characters of a text that are shown. A page that would be larger than 4.5 MB shows less.",
        ge=200,
        le=20000,
    )
    seed: int = setting(0, "Seed of the random samples.", ge=0)
    marks: list[NonEmpty] = setting(
        [],
        "Files of marks that the pages saved: the report then shows precision and recall by rule.",
        unique=True,
        file=True,
    )


class CompareSettings(Settings):
    """Compares all variants on one page. Runs if the run has variants."""

    confidence: Number = setting(
        0.95,
        "Confidence of intervals; 1 minus it bounds the probability of a false verdict in a family of comparisons.",
        gt=0.5,
        lt=1,
    )
    noise: Literal["pooled", "welch"] = setting(
        "pooled",
        "Noise between seeds: pooled over all settings, or welch, from the two compared settings alone (Welch 1947), "
        "with at least 5 seeds each.",
    )
    power: Number = setting(
        0.8,
        "Probability with which a difference should be seen, for the number of seeds it needs.",
        source="Cohen 1988, section 2.4",
        gt=0,
        lt=1,
    )
    resamples: int = setting(
        1000, "Draws of the bootstrap over documents, and over trainings for a scaling law.", ge=100, le=100000
    )
    seed: Seed = setting(0, "Seed of these draws.")


class ReportSettings(Settings):
    """The page that shows a run."""

    whatif: WhatifSettings = section()
    render: RenderSettings = section()
    inspect: InspectSettings = section()
    compare: CompareSettings = section()
