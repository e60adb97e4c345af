"""The languages that the bundled model knows, so that a plan can refuse one that it never finds."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.config_schema import schema_leaves, schema_section
from crawl2llm.chain.filter_order import filters_before
from crawl2llm.core.errors import InputError

BUNDLED = "bundled:lid.176.ftz"  # that of score.py, which imports pyarrow: a plan does not
# The labels of lid.176.ftz. Reading them from the model would cost every plan the start of fastText.
LID_176 = """
    af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs cv cy da de diq dsb dty dv
    el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km
    kn ko krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl
    nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk
    tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh
"""


def check_language_filter(language: dict[str, Any]) -> None:
    """InputError for a language of `language.select` that the bundled model never finds (other models are not asked), and for a rule
    without what it compares.
    """
    for key, need, lack in (("agreement_min", "models", "[]"), ("script_min", "script", "false")):
        if (value := language["select"][key]) is not None and not language["compare"][need]:
            raise InputError(
                f"language.select.{key} is {value!r}, and language.compare.{need} is {lack}: nothing is compared"
            )
    if language["score"]["model"] == BUNDLED:
        check_names(language["select"]["languages"], "language.select.languages")
        check_names(language["select"]["thresholds"], "language.select.thresholds")


def check_by_language(config: dict[str, Any]) -> None:
    """InputError for settings by language that could not hold: of languages that the bundled model never finds, of rules that there
    are not, or without the filter that finds the languages.
    """
    heuristics, quality = config["heuristics"], config["quality"]["select"]
    if "quality" in config["filters"] and quality["by"] == "language":
        if "language" not in filters_before(config["filters"], "quality"):
            raise InputError(
                f"quality.select.by is 'language', and filters, {config['filters']!r}, lacks language before quality"
            )
        if quality["method"] != "fraction":
            raise InputError(
                f"quality.select.by is 'language', which method {quality['method']!r} has no use for: set it to 'all'"
            )
    if "heuristics" not in config["filters"]:
        return
    for rule in heuristics["calibrate"]["rules"]:
        check_rule(rule, "heuristics.calibrate.rules")
    for language, families in heuristics["select"]["languages"].items():
        for family, rule_names in families.items():
            for name in rule_names:
                check_rule(f"{family}.{name}", f"heuristics.select.languages.{language}")
    if config["language"]["score"]["model"] == BUNDLED:
        check_names(heuristics["select"]["languages"], "heuristics.select.languages")
        check_names([heuristics["calibrate"]["reference"]], "heuristics.calibrate.reference")


def check_rule(rule: str, key: str) -> None:
    """InputError for a rule `<family>.<name>`, given by `key`, that there is not."""
    all_rules = [key for key, _ in schema_leaves(schema_section("heuristics.select")) if "." in key]
    if rule not in all_rules:
        nearest = difflib.get_close_matches(rule, all_rules, 3, 0.5)
        raise InputError(
            f"{key} has {rule!r}, which is no rule of heuristics.select; the nearest are {', '.join(nearest or all_rules)}"
        )


def check_names(names: Iterable[str], key: str) -> None:
    """The same of languages that are given by `key`."""
    labels = LID_176.split()
    for name in names:
        if name not in labels:
            nearest = difflib.get_close_matches(name.lower(), labels, 3, 0.5)
            raise InputError(
                f"{key} has {name!r}, which the model {BUNDLED} never finds"
                f"{': do you mean ' + ' or '.join(map(repr, nearest)) + '?' if nearest else ''}; "
                "it knows the 176 languages of https://fasttext.cc/docs/en/language-identification.html by codes such as 'en', 'de', 'zh'"
            )
