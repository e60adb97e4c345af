"""The rulegraph as mermaid."""

from __future__ import annotations

from scripts.common.rulegraph import BEGIN, END, mermaid, with_graph

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


def test_rules_in_the_workflows_order_grouped_by_stage() -> None:
    lines = mermaid(DOT).splitlines()
    assert [line.split()[1] for line in lines if "subgraph" in line] == ["ingest", "language", "report"]
    assert [line.strip() for line in lines if "-->" in line] == [
        "ingest_extract --> language_score",
        "language_score --> language_select",
    ]
    assert '    language_score["score"]' in lines and "all" not in mermaid(DOT)


def test_picture_is_put_between_its_markers() -> None:
    readme = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_graph(readme, "graph\n")
    assert once == f"before\n{BEGIN}\n```mermaid\ngraph\n```\n{END}\nafter\n" == with_graph(once, "graph\n")
