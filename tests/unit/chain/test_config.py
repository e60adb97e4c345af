"""The configuration: what is refused and how, what is filled in, and that the schema keeps its own rules."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from crawl2llm.chain import config as configuration
from crawl2llm.chain import config_schema
from crawl2llm.chain.config import lookup, merge_dicts, validate
from crawl2llm.chain.config_schema import schema, schema_leaves, schema_validator, tracked_section
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core import yaml_hints
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.nested_dicts import has_path
from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.extractors import EXTRACTORS, MARKDOWN

LEAVES = dict(schema_leaves())


def refused(config: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given_config", "words"),
    [
        (
            {"ingest": {"extract": {"extractor": "resiliparse", "markup": "markdown"}}},
            ["ingest.extract.markup", "resiliparse", "fast or trafilatura"],
        ),
        (
            {"language": {"select": {"treshold": 0.5}}},
            ["language.select.treshold is not a known key", "(did you mean language.select.threshold?)"],
        ),
        ({"langauge": {}}, ["langauge is not a known key", "(did you mean language?)"]),
        (
            {"pretrain": {"train": {"stepz": 5}}},  # of a section with many keys, those that are most like it
            [
                "stepz is not a known key (did you mean pretrain.train.steps?). Known here: steps, ",
                " more (crawl2llm keys pretrain.train)",
            ],
        ),
        ({"threshold": 0.5}, ["threshold is not a known key", "language.select.threshold"]),
        (
            {"language": {"select": {"threshold": "high"}}},
            ["language.select.threshold is 'high'", "number from 0 to 1"],
        ),
        (
            {"language": {"select": {"threshold": 1.5}}},
            ["language.select.threshold is 1.5, out of range", "default 0.65"],
        ),
        ({"language": {"select": {"threshold": True}}}, ["not of type number"]),
        ({"language": {"select": {"threshold": float("nan")}}}, ["language.select.threshold is nan"]),
        ({"language": {"select": {"threshold": "1e-2"}}}, ["YAML reads 1e-2 as text, write 1.0e-2"]),
        (
            {"pretrain": {"train": {"model": {"size": "125 million"}}}},
            ["pretrain.train.model.size is '125 million'", "such as 125M, or null (default null)"],
        ),
        ({"ingest": {"extract": {"shards": 4.0}}}, ["ingest.extract.shards is 4.0", "integer from 1"]),
        ({"ingest": {"extract": {"shards": 0}}}, ["ingest.extract.shards is 0, out of range"]),
        ({"ingest": {"extract": {"sources": [{"name": "a"}]}}}, ["ingest.extract.sources.0 lacks the key 'kind'"]),
        (
            {"ingest": {"extract": {"sources": [{"name": "a", "kind": "wrac"}]}}},
            ["ingest.extract.sources.0.kind is 'wrac'", "did you mean 'warc'?"],
        ),
        (
            {
                "ingest": {
                    "extract": {"sources": [{"name": "a", "kind": "warc", "skip_filters": ["lines", "heuristic"]}]}
                }
            },
            [
                "ingest.extract.sources.0.skip_filters.1 is 'heuristic'; allowed are 'url', 'language', 'multilingual', 'heuristics', ",
                "'lines', 'boilerplate', 'licence', 'sourcecode', 'toxicity', 'pii', 'dedup', 'paragraphs', 'substrings', 'quality', "
                "'decontaminate' (did you mean 'heuristics'?)",
            ],
        ),
        ({"language": None}, ["language is None; it is a section with the keys "]),
        (
            {"pretrain": {"train": {"parallel": 2}}},
            ["parallel is 2; it is a section with the keys tensor, pipeline, sequence, expert, such as {tensor: 2}"],
        ),
        (
            {"models": {"m": "/a/b"}},
            ["models.m is '/a/b', which is not of type object or null", "of a published model write {path: /a/b}"],
        ),
        (
            {"tokenize": {"train": {"from": "org/name"}}},
            [
                "tokenize.train.from is 'org/name'; it is a section with the keys path, hub, revision; write {hub: org/name, revision: the",
                " 40 digits of a commit}, or {path: org/name} if it is a folder here",
            ],
        ),
        ({"variants": {"main": {}}}, ["variants"]),
        ([], ["the top level is []"]),
    ],
)
def test_refused_with_the_key_the_value_and_what_is_allowed(given_config: Any, words: list[str]) -> None:
    message = refused(given_config)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("name", EXTRACTORS)
def test_markdown_is_for_extractors_that_write_it(name: str) -> None:
    given = {"ingest": {"extract": {"extractor": name, "markup": "markdown"}}}
    if name in MARKDOWN:
        validate(given)
    else:
        able = " or ".join(MARKDOWN)
        assert refused(given).endswith(
            f"ingest.extract.markup is markdown, which {name} does not write: set ingest.extract.extractor to {able}"
        )


def test_every_problem_is_named_in_one_go() -> None:
    message = refused({"langauge": {}, "language": {"select": {"threshold": 2}}})
    assert len(message.splitlines()) == 2


def test_an_overlay_of_a_variant_is_checked_as_the_config_it_makes() -> None:
    message = refused({"variants": {"strict": {"language": {"select": {"threshold": 7}}}}})
    assert "variants.strict" in message and "language.select.threshold is 7" in message
    assert "unkown is not a known key" in refused({"variants": {"a": {"unkown": 1}}})
    validate({"variants": {"small": {"pretrain": {"train": {"micro_batch": 2}}}}})


def test_defaults_are_filled_and_given_values_stay() -> None:
    complete = validate({"language": {"select": {"languages": ["de"]}}})
    unset = {"agreement_min": None, "script_min": None, "thresholds": {}}
    assert lookup(complete, "language.select") == {"languages": ["de"], "threshold": 0.65, **unset}
    assert {path for path in LEAVES if "default" in LEAVES[path]} <= {
        path for path in LEAVES if has_path(complete, path)
    }
    assert validate(complete) == complete


def told(text: str) -> str:
    """What a config, as it stands in a file, is refused with."""
    return refused(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "language: {select: {languages: [en, no]}}",
            "YAML reads an unquoted no, off or false as False: quote it, 'no'",
        ),
        ("language: {select: {languages: [Yes]}}", "YAML reads an unquoted yes, on or true as True: quote it, 'yes'"),
        (
            "heuristics: {score: {stop_words: {no: [og]}}}",
            "YAML reads an unquoted no, off or false as False: quote it, 'no'",
        ),
        ("variants: {on: {}}", "YAML reads an unquoted yes, on or true as True: quote it, 'yes'"),
        ("quality: {select: {method: off}}", "YAML reads an unquoted no, off or false as False"),
        ("evaluate: {model: {prompts: [2024-01-31]}}", "YAML reads 2024-01-31 as a date: quote it, '2024-01-31'"),
        (
            "evaluate: {model: {prompts: [1984]}}",
            "is 1984, which is not of type string; allowed: string; YAML reads it as a number",
        ),
        ("data: 0123", "YAML reads it as a number (0123 is octal, 12:30 is base 60): put it in quotes"),
        ("data: 12:30", "YAML reads it as a number (0123 is octal, 12:30 is base 60): put it in quotes"),
        ("pretrain: {train: {model: {layers: '4096'}}}", "'4096' is text because of its quotes, write 4096"),
        ("pretrain: {train: {model: {layers: 4e3}}}", "YAML reads 4e3 as text, write 4000"),
        ("pretrain: {train: {learning_rate: 1e-4}}", "YAML reads 1e-4 as text, write 1.0e-4"),
        ("pretrain: {train: {learning_rate: 6e-04}}", "YAML reads 6e-04 as text, write 6.0e-04"),
        ("pretrain: {train: {zero_stage: '1'}}", "'1' is text because of its quotes, write 1"),
        ("language: {select: {threshold: '0.65'}}", "'0.65' is text because of its quotes, write 0.65"),
    ],
)
def test_what_yaml_makes_of_a_scalar_is_said(text: str, words: str) -> None:
    assert words in told(text)


def test_quotes_are_not_the_advice_where_numbers_are_allowed() -> None:
    words = "zero_stage is 0.5, which is not of type integer; allowed: 0 or 1 or 2 or 3 (default 1)"
    assert told("pretrain: {train: {zero_stage: 0.5}}").endswith(words)
    said = told("heuristics: {calibrate: {method: '10'}}")
    assert "allowed are null, 'mean_std'" in said and "write 10" not in said


def test_a_value_of_another_type_is_said_once() -> None:
    assert told("quality: {select: {by: 3}}").count("quality.select.by is 3") == 1


@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    st.sampled_from([repr, "{:e}".format, "{:g}".format]),
)
def test_the_literal_that_a_hint_gives_is_read_as_the_same_number(value: float, spelled: Any) -> None:
    text = spelled(value)
    hint = yaml_hints.number_literal(text)
    assert hint is not None
    read = yaml.safe_load(hint)
    assert isinstance(read, int | float) and float(read) == float(text)


@pytest.mark.parametrize("text", ["high", "nan", "inf", "-inf", "", "1.2.3", "0x10"])
def test_what_is_no_number_has_no_literal(text: str) -> None:
    assert yaml_hints.number_literal(text) is None


def test_filled_defaults_are_nobody_elses() -> None:
    validate({})["language"]["select"]["languages"].append("xx")
    assert validate({})["language"]["select"]["languages"] == ["en"]


@pytest.mark.parametrize("path", LEAVES)
def test_leaf_says_what_it_is(path: str) -> None:
    leaf = LEAVES[path]
    assert leaf.get("description", "").endswith("."), f"{path} has no description that is a sentence"
    assert "default" in leaf, f"{path} has no default"
    assert "type" in leaf or "enum" in leaf, f"{path} has no type"
    errors = list(schema_validator(leaf).iter_errors(leaf["default"]))
    assert not errors, f"the default of {path} is refused: {errors}"
    assert all(isinstance(name, str) for name in leaf.get("enum", [""]) if leaf.get("type") == "string")


def test_every_section_is_closed_and_described() -> None:
    def check(node: dict[str, Any], path: str) -> None:
        assert node["additionalProperties"] is False, f"{path} accepts unknown keys"
        assert path == "" or node.get("description"), f"{path} has no description"
        for key, child in node["properties"].items():
            if config_schema.is_section(child):
                check(child, f"{path}.{key}".lstrip("."))

    Draft202012Validator.check_schema(schema())
    check(schema(), "")


def test_a_pattern_is_said_in_words() -> None:
    def patterns(node: Any) -> list[Any]:
        if isinstance(node, list):
            return [found for child in node for found in patterns(child)]
        if not isinstance(node, dict):
            return []
        here = [node] if isinstance(node.get("pattern"), str) else []
        return here + patterns(list(node.values()))

    found = [node for node in patterns(schema()) if node["pattern"] != config_schema.AUTO]
    assert len(found) > 5 and all(node["form"] for node in found)


@pytest.mark.parametrize(
    "path", [ROOT / "config.yaml", *sorted((ROOT / "configs").glob("**/*.yaml"))], ids=lambda path: path.name
)
def test_config_of_the_repository_is_valid(path: Any) -> None:
    validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {}, source=path.name)


def test_tracked_leaves_placement_keys_out() -> None:
    complete = validate({})
    for path, leaf in LEAVES.items():
        step = ".".join(path.split(".")[:2])
        if path.count(".") >= 2:
            left_out = leaf.get("placement") or leaf.get("tracked")
            assert has_path(tracked_section(complete, step), path.removeprefix(f"{step}.")) is not bool(left_out), path


def test_a_key_that_is_younger_than_its_step_is_tracked_where_it_is_not_the_default() -> None:
    step = "pretrain.train"
    default = tracked_section(validate({"pretrain": {"train": {"model": {"size": None}}}}), step)
    assert "size" not in default["model"] and default == tracked_section(validate({}), step)
    sized = tracked_section(validate({"pretrain": {"train": {"model": {"size": "30M"}}}}), step)
    assert sized == {**default, "model": {**default["model"], "size": "30M"}}
    default = tracked_section(validate({"pretrain": {"train": {"engine": "deepspeed"}}}), step)
    assert "engine" not in default and default == tracked_section(validate({}), step)
    assert tracked_section(validate({"pretrain": {"train": {"engine": "torch"}}}), step) == {
        **default,
        "engine": "torch",
    }


GIVEN: dict[str, Any] = {
    "defaults": {},
    "keys that are young": {
        "engine": "torch",
        "ema": 0.99,
        "model": {"size": "30M"},
        "batch_ramp": [[0, 0.5], [0.5, 1]],
    },
    "keys that are old": {"steps": 7, "model": {"hidden_size": 96, "layers": 3}, "threads": 1},
    "placement": {"micro_batch": 3, "parallel": {"tensor": 2}},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_step_s_settings_are_completed_by_their_class_and_digested_without_what_they_lack(
    given: dict[str, Any],
) -> None:
    """Every key that is tracked has the value of the complete config; `prune_settings` takes back what was added."""
    step = "pretrain.train"
    complete = validate({"pretrain": {"train": given}})
    told = tracked_section(complete, step)
    whole = settings_class(step).model_validate(told).model_dump(by_alias=True)
    for path, leaf in schema_leaves(config_schema.schema_section(step)):
        assert leaf.get("placement") or lookup(whole, path) == lookup(complete, f"{step}.{path}"), path
    assert config_schema.prune_settings(step, whole) == told


TREES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda child: st.dictionaries(st.sampled_from("abc"), child, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES)
def test_merged_is_the_overlay_where_it_speaks_and_the_base_elsewhere(base: Any, overlay: Any) -> None:
    found = merge_dicts(base, overlay)
    assert merge_dicts(found, overlay) == found
    assert merge_dicts(base, {}) == base and merge_dicts({}, overlay) == overlay
    assert set(found) == set(base) | set(overlay)
    for key in set(base) - set(overlay):
        assert found[key] == base[key]


@given(st.text(min_size=1, max_size=30))
def test_any_unknown_key_is_refused_by_name(key: str) -> None:
    if key not in schema()["properties"]:
        assert "is not a known key" in refused({key: 1})


def test_a_filter_that_is_set_and_not_used_is_told() -> None:
    """`filters` is forgotten easily."""
    given = {"url": {"score": {"words": ["words.txt"]}}, "language": {}}
    assert configuration.unused_filter_lines(given, configuration.validate(given)) == [
        "url is set, and not used: filters is language, heuristics, dedup, quality, decontaminate"
    ]
    given["filters"] = ["url", "language"]
    assert configuration.unused_filter_lines(given, configuration.validate(given)) == []


def test_one_language_without_brackets_is_told_how_to_write_it() -> None:
    assert refused({"language": {"select": {"languages": "en"}}}).endswith("write a list: [en]")


def test_of_many_keys_an_error_lists_a_few() -> None:
    (line,) = refused({"pretrain": {"train": {"learning_rat": 5}}}).splitlines()
    assert len(line) < 400 and line.count(",") == 11 and "learning_rate, " in line.split("Known here: ")[1]
    assert refused({"language": {"select": {"treshold": 5}}}).endswith(
        ": languages, threshold, agreement_min, script_min, thresholds"
    )


def test_the_data_folder_stands_in_every_key_that_names_files() -> None:
    given_config = {
        "data": "/far/",
        "url": {"score": {"folders": ["{data}/ut1"]}},
        "finetune": {"pairs": {"files": [{"path": "{data}/sft.jsonl", "question": "{data}", "answer": "{answer}"}]}},
        "pretrain": {"train": {"start_from": "{data}/model"}},
        "ingest": {"extract": {"sources": [{"name": "web", "kind": "warc", "paths": ["{data}/*.warc.gz"]}]}},
        "variants": {"other": {"quality": {"train": {}}, "url": {"score": {"domains": ["{data}/domains"]}}}},
    }
    config = validate(given_config)
    assert config["url"]["score"]["folders"] == ["/far/ut1"]
    assert config["finetune"]["pairs"]["files"] == [
        {"path": "/far/sft.jsonl", "question": "{data}", "answer": "{answer}"}
    ]
    assert config["pretrain"]["train"]["start_from"] == "/far/model"
    assert config["ingest"]["extract"]["sources"][0]["paths"] == ["{data}/*.warc.gz"]
    assert config_of_variant(config, "other")["url"]["score"]["domains"] == ["/far/domains"]
