"""What the variants of a run are compared on: the held-out documents and the items of `main`, the same for all of them.

A variant's complete config has main's under KEY (`config_of_variant` of chain/fingerprint.py puts it there), so that its fingerprints can
depend on what it is compared with. A run without variants has no reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEY = "reference"  # of a variant's complete config; no key of the schema
Config = dict[str, Any]


class Reference:
    """The complete config of `main`, and main's fingerprints as far as they were asked for."""

    def __init__(self, main: Config, split_differs: Callable[[Config, Config, dict[str, str]], bool]) -> None:
        """split_differs: (config, main, main's fingerprints) → whether anything that corpus.split depends on differs."""
        self.main = main
        self._split_differs = split_differs
        self.memo: dict[str, str] = {}
        self.same_files: bool | None = None  # whether the source files hold the same, where somebody has looked
        self._differs: bool | None = None

    def __deepcopy__(self, _: dict[int, Any]) -> Reference:
        return self  # nobody changes it, and a copy would hold another whole config

    def has_other_documents(self, config: Config) -> bool:
        """Whether a variant chooses its documents otherwise than main: by other sources, or anything that corpus.split depends on."""
        if self._differs is None:
            self._differs = self._compare_documents(config)
        return self._differs

    def _compare_documents(self, config: Config) -> bool:
        # How source files are found is in no fingerprint.
        same_sources = config["ingest"]["extract"]["sources"] == self.main["ingest"]["extract"]["sources"]
        if not (same_sources if self.same_files is None else self.same_files):
            return True
        return self._split_differs(config, self.main, self.memo)


def without_reference(config: Config) -> Config:
    """A complete config without what it is compared with, as the schema knows it."""
    return {key: value for key, value in config.items() if not isinstance(value, Reference)}


def main_config(config: Config) -> Config | None:
    """The complete config of the variant that a variant is compared with: `main`. None if nothing is compared.

    config: complete; that of main has its `variants`.
    """
    is_main = KEY not in config
    if is_main and not config["variants"]:
        return None
    reference = config if is_main else config[KEY].main
    is_compared = all(each["evaluate"]["common"]["enabled"] for each in (config, reference))
    return reference if is_compared else None


def main_or_own_config(config: Config) -> Config:
    """The same; without a comparison the config itself, as where a program is started by hand."""
    return main_config(config) or config


def main_memo(config: Config, own_memo: dict[str, str]) -> dict[str, str]:
    """Main's fingerprints so far. own: those of the config itself, which may be main's."""
    return config[KEY].memo if KEY in config else own_memo


def split_drops_duplicates(config: Config) -> bool:
    """Whether corpus.split takes near-duplicates of the validation documents out of the training text by itself: of every source."""
    sources = config["ingest"]["extract"]["sources"]
    skipped = any("dedup" in source.get("skip_filters", []) for source in sources)
    return "dedup" in config["filters"] and bool(config["corpus"]["split"]["drop_near_duplicates"]) and not skipped


def needs_heldout_search(config: Config) -> bool:
    """Whether a variant's training text has to be searched for what main holds out.

    Where main's split does that by itself, main need not be searched, nor a variant that has the same documents.
    """
    reference = main_config(config)
    if reference is None:
        return False
    return not split_drops_duplicates(reference) or (KEY in config and config[KEY].has_other_documents(config))
