"""Writes the rulegraph of the workflow as mermaid and as SVG: docs/rulegraph.mmd, docs/rulegraph.svg.

python -m tools.rulegraph
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile

from crawl2llm.chain.steps import STEPS, rule_of, step_of
from crawl2llm.core.root import ROOT

TASK_COUNT_NOTES = {
    None: "1 task",
    "shard": "a task for each shard",
    "band": "a task for each band",
    "part": "a task for each part of the pairs or hashes",
    "model": "a task for each model",
    "contender": "a task for each variant and rung",
}
NODE_LINE = re.compile(r'^\s*(\d+)\s*\[\s*label = "([^"\\]+)')
EDGE_LINE = re.compile(r"^\s*(\d+) -> (\d+)")


def rulegraph_dot(*options: str) -> str:
    """Snakemake's rulegraph in the DOT language. Raises RuntimeError with Snakemake's message if it fails."""
    with tempfile.TemporaryDirectory() as folder:  # Snakemake writes logs into the run's folder
        finished = subprocess.run(
            [
                sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", folder,
                "--configfile", str(ROOT / "config.yaml"), *options, "--rulegraph", "dot",
            ],
            capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
    if finished.returncode:
        raise RuntimeError(finished.stderr or finished.stdout)
    return finished.stdout[finished.stdout.index("digraph") :]


def rule_edges(graph: str) -> list[tuple[str, str]]:
    """(rule, rule that reads from it), from DOT, in the workflow's order. Without the target rule.

    The report and its parts read nearly every step: only the last edges into them are left.
    """
    order = [rule_of(name) for name in STEPS]
    names = {match.group(1): match.group(2) for match in map(NODE_LINE.match, graph.splitlines()) if match}
    numbered_edges = {match.groups() for match in map(EDGE_LINE.match, graph.splitlines()) if match}
    pairs = {(names[source], names[target]) for source, target in numbered_edges if names[target] != "all"}
    last = {
        page: {max((source for source, target in pairs if target == page), key=order.index, default="")}
        for page in ("report_inspect", "report_whatif")
    }
    last["report_render"] = {"evaluate_model", "report_inspect", "report_whatif"}
    kept_pairs = [(source, target) for source, target in pairs if source in last.get(target, {source})]
    return sorted(kept_pairs, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))


def mermaid_chart(pairs: list[tuple[str, str]]) -> str:
    """A mermaid flowchart of the edges: one box a rule, grouped by stage."""
    rules = [rule_of(name) for name in STEPS if rule_of(name) in {rule for pair in pairs for rule in pair}]
    lines = ["flowchart TD"]
    for stage in dict.fromkeys(rule.split("_")[0] for rule in rules):
        lines.append(f"  subgraph {stage}")
        lines += [f'    {rule}["{rule.split("_")[1]}"]' for rule in rules if rule.split("_")[0] == stage]
        lines.append("  end")
    lines += [f"  {source} --> {target}" for source, target in pairs]
    return "\n".join(lines) + "\n"


def rulegraph_svg(pairs: list[tuple[str, str]]) -> str:
    """The same edges as a picture, without an edge if another path connects its two steps: see commands/plan/picture."""
    from crawl2llm.commands.plan.picture import svg as drawing
    from crawl2llm.commands.plan.picture.graph import Box, Graph
    from crawl2llm.commands.plan.picture.routes import draw_graph

    steps_shown = {step_of(rule) for pair in pairs for rule in pair}
    boxes = [
        Box("main", step, count_note=TASK_COUNT_NOTES[facts.per])
        for step, facts in STEPS.items()
        if step in steps_shown
    ]
    keys = [(f"main/{source.replace('_', '.', 1)}", f"main/{target.replace('_', '.', 1)}") for source, target in pairs]
    steps = tuple(box.step for box in boxes)
    graph = Graph(steps, ("main",), {box.key: box for box in boxes}, tuple(keys)).transitive_reduction()
    return drawing.standalone_svg(graph, draw_graph(graph, high=46), "The steps of the workflow, by stage")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="profiles/local", help="the Snakemake profile")
    args = parser.parse_args(argv)
    pairs = rule_edges(rulegraph_dot("--profile", args.profile))
    picture = mermaid_chart(pairs)
    target = ROOT / "docs" / "rulegraph.mmd"
    target.write_text(picture, encoding="utf-8")
    target.with_suffix(".svg").write_text(rulegraph_svg(pairs), encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)} and {target.with_suffix('.svg').relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
