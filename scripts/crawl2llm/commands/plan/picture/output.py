"""The pictures of a plan as text: a page for a browser, or one SVG."""

from __future__ import annotations

from crawl2llm.commands.plan.complete import Plan
from crawl2llm.commands.plan.estimate import Estimate
from crawl2llm.commands.plan.picture import page, plan_graph, svg
from crawl2llm.commands.plan.picture.routes import draw_graph
from crawl2llm.commands.plan.words import gpu_hours_text, time_text, total_text


def plan_totals(plan: Plan) -> page.Summary:
    """The totals of a plan, the same as it prints."""
    total = sum(plan.costs.values(), Estimate())
    folder = plan.work.last.folder.resolve()
    return page.Summary(
        title=f"Plan of {folder.name}",
        folder=str(folder),
        tasks=len(plan.tasks),
        about=time_text(total) if plan.tasks else "",
        gpu_hours=gpu_hours_text(total) if plan.uses_gpus and plan.tasks else "",
        estimate=total_text(plan.costs, plan.uses_gpus, plan.cores)
        if plan.tasks
        else "nothing to do: every result is up to date",
    )


def picture_texts(plan: Plan, kinds: list[str]) -> dict[str, str]:
    """Kind (html, svg) → text of the file."""
    if plan.project is None:
        raise ValueError("a plan without its project has no picture")
    graph = plan_graph.build_graph(plan.tasks, plan.project, plan.work, plan.cores)
    totals = plan_totals(plan)
    text_by_kind = {}
    for kind in kinds:
        if kind == "html":
            text_by_kind[kind] = page.render_page(graph, totals)
        else:
            reduced = graph.transitive_reduction()
            text_by_kind[kind] = svg.standalone_svg(reduced, draw_graph(reduced), totals.title, totals.summary_line)
    return text_by_kind
