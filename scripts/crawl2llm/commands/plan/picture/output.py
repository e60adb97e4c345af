"""The pictures of a plan as text: a page for a browser, or one SVG."""

from __future__ import annotations

from crawl2llm.commands.plan.complete import Plan
from crawl2llm.commands.plan.estimate import Estimate
from crawl2llm.commands.plan.picture import page, plan_graph, svg
from crawl2llm.commands.plan.picture.routes import draw
from crawl2llm.commands.plan.words import about, closing, hours


def summary(plan: Plan) -> page.Summary:
    """The totals of a plan, the same as it prints."""
    total = sum(plan.costs.values(), Estimate())
    folder = plan.work.last.folder.resolve()
    return page.Summary(
        title=f"Plan of {folder.name}",
        folder=str(folder),
        tasks=len(plan.tasks),
        about=about(total) if plan.tasks else "",
        gpu_hours=hours(total) if plan.gpus and plan.tasks else "",
        estimate=closing(plan.costs, plan.gpus, plan.cores)
        if plan.tasks
        else "nothing to do: every result is up to date",
    )


def texts(plan: Plan, kinds: list[str]) -> dict[str, str]:
    """Kind (html, svg) → text of the file."""
    if plan.project is None:
        raise ValueError("a plan without its project has no picture")
    graph = plan_graph.graph(plan.tasks, plan.project, plan.work, plan.cores)
    totals = summary(plan)
    found = {}
    for kind in kinds:
        if kind == "html":
            found[kind] = page.render(graph, totals)
        else:
            reduced = graph.reduced()
            found[kind] = svg.alone(reduced, draw(reduced), totals.title, totals.line)
    return found
