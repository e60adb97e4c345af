"""Answers that are drawn in slots on a GPU, by captured graphs, are those that a CPU draws together."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from crawl2llm.training import sampling, slots
from crawl2llm.training.sampling import Choice
from tests.unit.training.test_slots import END, EXPERTS, TYPES, draws, model, prompts

MOST = 40


@pytest.mark.parametrize("kind", TYPES)
def test_graphs_draw_what_a_cpu_draws(gpu: torch.device, kind: str) -> None:
    """Greedy and sampled, two rounds of prompts in three slots; after the first round each shape is a graph.

    Experts' products copy sizes from the host in transformers 5.17, and are not captured.
    """
    made, given = model(kind), prompts(10)
    chance = draws(len(given), MOST)
    for choice in (Choice(END, 0.0, with_nats=True), Choice(END, 4.0, 0.95)):
        expected = sampling.draw_together(partial(sampling.next_logits, made), given, chance, choice)
        moved = made.to(gpu)
        drawer = slots.drawer_for(moved, choice, 3, stride=4)
        assert isinstance(drawer, slots.SlotDrawer)
        for _ in range(2):
            answers = drawer.draw(given, chance)
            assert [answer.ids for answer in answers] == [answer.ids for answer in expected]
        for answer, reference in zip(answers, expected, strict=True):
            assert answer.nats == pytest.approx(reference.nats, abs=5e-3)
        assert (drawer.captured and any(drawer.graphs.values())) or EXPERTS.items() <= TYPES[kind].items()
        made = moved.to("cpu")
