"""The rulegraph as mermaid."""

from __future__ import annotations

from crawl2llm.chain.steps import STEPS
from tools.rulegraph import TASK_COUNT_NOTES, mermaid_chart, rule_edges, rulegraph_svg

DOT = """digraph snakemake_dag {
    0[label = "all", color = "0.1 0.6 0.85", style="rounded"];
    1[label = "report_render", color = "0.1 0.6 0.85", style="rounded"];
    2[label = "language_select", color = "0.1 0.6 0.85", style="rounded"];
    3[label = "language_score", color = "0.1 0.6 0.85", style="rounded"];
    4[label = "ingest_extract", color = "0.1 0.6 0.85", style="rounded"];
    1 -> 0
    3 -> 2
    4 -> 3
    2 -> 1
}"""


def test_edges_in_the_workflows_order() -> None:
    # The report reads every step; only its edge from the last is shown. Snakemake's target rule is left out.
    assert rule_edges(DOT) == [("ingest_extract", "language_score"), ("language_score", "language_select")]


def test_rules_grouped_by_stage() -> None:
    picture = mermaid_chart(rule_edges(DOT))
    assert [line.split()[1] for line in picture.splitlines() if "subgraph" in line] == ["ingest", "language"]
    assert '    language_score["score"]\n' in picture
    assert "  ingest_extract --> language_score\n" in picture


def test_svg_names_every_step_and_is_the_same_twice() -> None:
    picture = rulegraph_svg(rule_edges(DOT))
    assert picture == rulegraph_svg(rule_edges(DOT))
    assert all(f">{step}</text>" in picture for step in ("ingest.extract", "language.score", "language.select"))
    assert picture.count('class="edge"') == 2 and ">a task for each shard</text>" in picture


def test_every_kind_of_step_is_counted() -> None:
    assert {step.per for step in STEPS.values()} == TASK_COUNT_NOTES.keys()
