"""Answers drawn in slots: when an answer ends, the next prompt takes its row (continuous batching: Orca, OSDI 2022, section 3.2).

Keys and values lie in tensors of one size, each row's from position 0 on, so that a row knows of no padding and of no other row. On CUDA
the forward pass of a number of rows and positions, with the choice of a token, is captured as a graph when it comes for the second time,
and the host waits for the device once in STRIDE tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from transformers import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import sampling
from crawl2llm.training.sampling import Answer, Choice, Following, Listener

# Types whose answers a test found to be those of a cache that grows. Others carry a state, or make their masks themselves.
SLOT_TYPES = (
    "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen3",
)  # fmt: skip
STRIDE = 16  # tokens between two waits for a GPU
BLOCK = 256  # positions: on a GPU attention reads a multiple of it, so that few graphs are captured
PREFILL_TOKENS = 16_384  # of prompts, padding among them, that are read in one forward pass


def can_use_slots(model: Any) -> bool:
    """Whether answers of a model can be drawn in slots: its type is one of SLOT_TYPES, and its attention one whose masks are replaced."""
    return model.config.model_type in SLOT_TYPES and model.config._attn_implementation in ("sdpa", "eager")


@dataclass
class Positions:
    """How many positions a model computed: all, and those that no answer needs, padding or behind an end."""

    computed: int = 0
    idle: int = 0


class SlotCache(Cache):
    """Keys and values of `slots` rows of `length` positions, each [slots, heads, length, width of a head] of a layer.

    A forward pass either reads prompts, whose keys and values go to `targets`, or one token of each of the first `rows` rows, at the row's
    place in `places`, int64 [slots]. Layers are made when they first come.
    """

    def __init__(self, slots: int, length: int, device: torch.device) -> None:
        super().__init__(layers=[])
        self.slots, self.length = slots, length
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.places = torch.zeros(slots, dtype=torch.int64, device=device)
        self.numbers = torch.arange(slots, device=device)
        self.rows, self.visible, self.width = slots, length, 0
        # Slots, and the row of the prompts that goes to each; None: not prompts but a token of each row is read.
        self.targets: tuple[torch.Tensor, torch.Tensor] | None = None

    def __len__(self) -> int:
        return max(1, len(self.kept))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep a layer's keys and values [rows, heads, tokens, width]; those that attention reads."""
        states = key_states, value_states
        while len(self.kept) <= layer_idx:
            self.kept.append((self._empty_store(key_states), self._empty_store(value_states)))
        if self.targets is not None:
            slots, rows = self.targets
            for store, part in zip(self.kept[layer_idx], states, strict=True):
                store[:, :, : self.width].index_copy_(0, slots, part.index_select(0, rows).to(store.dtype))
            return states
        for store, part in zip(self.kept[layer_idx], states, strict=True):
            store[self.numbers[: self.rows], :, self.places[: self.rows]] = part[:, :, 0].to(store.dtype)
        keys, values = (store[: self.rows, :, : self.visible] for store in self.kept[layer_idx])
        return keys, values

    def _empty_store(self, states: torch.Tensor) -> torch.Tensor:
        """Room for a layer's keys or values, in the precision in which attention reads them: autocast's, if it is on."""
        kind, dtype = self.places.device.type, states.dtype
        if dtype == torch.float32 and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        return states.new_zeros((self.slots, states.shape[1], self.length, states.shape[3]), dtype=dtype)

    def move_rows(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy rows to other slots."""
        device = self.places.device
        from_rows, to_rows = (torch.tensor(rows, device=device) for rows in (sources, targets))
        for stores in self.kept:
            for store in stores:
                store.index_copy_(0, to_rows, store.index_select(0, from_rows))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: places are given."""
        return 0

    def get_mask_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """How many positions attention reads, and the first of them."""
        return (self.visible if self.targets is None else self.width), 0

    def _row_mask(self, *, mask_function: Any, dtype: torch.dtype, is_float: bool) -> torch.Tensor:
        """Which positions each row's token sees by a mask function of transformers, by its place: [rows, 1, 1, visible]."""
        rows = self.numbers[: self.rows, None, None, None]
        seen: torch.Tensor = mask_function(
            rows, torch.zeros_like(rows[:1]), self.places[: self.rows, None, None, None],
            torch.arange(self.visible, device=rows.device)[None, None, None],
        )  # fmt: skip
        seen = seen.expand(self.rows, 1, 1, self.visible)
        if not is_float:
            return seen
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)

    @contextmanager
    def masking_rows(self) -> Iterator[None]:
        """Forward passes whose masks are by each row's place: transformers' are by a place that all rows share.

        What a type adds to a causal mask, as a sliding window, comes as a function of places, and is kept.
        """
        inner = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}

        def mask(name: str, **more: Any) -> Any:
            if self.targets is not None:
                return inner[name](**more)
            return self._row_mask(
                mask_function=more["mask_function"], dtype=more.get("dtype", torch.float32), is_float=name == "eager"
            )

        for name in inner:
            ALL_MASK_ATTENTION_FUNCTIONS[name] = partial(mask, name)
        try:
            yield
        finally:
            for name, function in inner.items():
                ALL_MASK_ATTENTION_FUNCTIONS[name] = function


@dataclass
class Slot:
    """An answer that is drawn: the number of its prompt, the prompt, and how many tokens it may have."""

    number: int
    prompt: Sequence[int]
    most: int
    answer: Answer = field(default_factory=Answer)

    def next_input(self) -> tuple[int, int]:
        """(the token that is read next, its place)."""
        last = self.answer.ids[-1] if self.answer.ids else self.prompt[-1]
        return last, len(self.prompt) + len(self.answer.ids) - 1


def even_size(rows: int) -> int:
    """The least number of rows, at least `rows`, of few: each power of two is divided by four."""
    step = max(1, 2 ** (rows.bit_length() - 1) // 4)
    return -(-rows // step) * step


class SlotDrawer:
    """Draws answers in `slots` rows, after as many prompts as come. It keeps its cache and its graphs for the next prompts.

    following: of a forward pass with a SlotCache and without a mask. stride: tokens between two waits for the device. captured: whether the
    device is CUDA, and a forward pass can be captured. agree: the largest of the numbers that all processes give, if a forward pass is a
    collective call; all processes then make as many. positions: what was computed, counted from the first prompt on.
    """

    def __init__(
        self, following: Following, device: torch.device, choice: Choice, slots: int, *, stride: int | None = None,
        captured: bool | None = None, agree: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        cuda = device.type == "cuda"
        self.following, self.device, self.choice, self.slots = following, device, choice, slots
        self.stride = stride or (STRIDE if cuda else 1)
        self.block = BLOCK if cuda else 1
        self.captured = cuda if captured is None else captured
        self.agree = agree
        self.positions = Positions()
        self.cache: SlotCache | None = None
        self.graphs: dict[tuple[int, int], Any] = {}  # by rows and positions that are read; None: seen once

    def set_choice(self, choice: Choice) -> None:
        """Choose tokens so from now on. Graphs of another choice are dropped."""
        if choice != self.choice:
            self.choice, self.graphs = choice, {}

    @torch.no_grad()
    def draw(
        self, prompts: Sequence[Sequence[int]], draws: torch.Tensor, listen: Listener | None = None
    ) -> list[Answer]:
        """An answer to each prompt, of at least a token each, by its draws: float64 [prompts, most tokens], on the CPU.

        If keys and values of so many rows do not fit, half as many are taken. Raises InputError if not even one row fits.
        """
        answers: dict[int, Answer] = {}
        needed = max((len(prompt) for prompt in prompts), default=1) + draws.shape[1]
        while True:
            try:
                self._make_room(needed, len(prompts) - len(answers))
                self._draw_all(prompts, draws, answers, listen)
                return [answers[number] for number in range(len(prompts))]
            except torch.OutOfMemoryError as error:
                self.slots = self._rows_for(len(prompts) - len(answers))
                self.cache = None
                if self.slots == 1 or self.agree or listen:
                    raise InputError(
                        f"memory ran out while {self.slots} answers of up to {needed:,} tokens, prompts among them, were drawn at once "
                        f"({str(error).partition(chr(10))[0]}): draw fewer at once, or make the answers or the prompts shorter"
                    ) from error
                self.slots //= 2
                log.warning("%d answers at once do not fit into memory: %d are drawn", 2 * self.slots, self.slots)

    def _rows_for(self, prompts: int) -> int:
        """Of how many rows a cache is made for so many prompts."""
        return min(self.slots, even_size(max(1, prompts)))

    def _make_room(self, needed: int, prompts: int) -> None:
        """A cache of at least `needed` positions, for as many prompts as there are slots; another one needs other graphs."""
        rows, length = self._rows_for(prompts), -(-needed // self.block) * self.block
        if self.cache is not None:
            if self.cache.length >= needed and self.cache.slots >= rows:
                return
            rows, length = max(rows, self.cache.slots), max(length, self.cache.length)
        self.cache = None  # before the next is made
        self.cache = SlotCache(rows, length, self.device)
        kinds = {"device": self.device, "dtype": torch.float64}
        self.tokens = torch.zeros((rows, 1), dtype=torch.int64, device=self.device)
        self.draws = torch.zeros((rows, self.stride), **kinds)  # type: ignore[call-overload]
        # What a round draws, as numbers of one kind so that one copy takes all: tokens, and their nats.
        self.drawn = torch.zeros((rows, 2, self.stride), **kinds)  # type: ignore[call-overload]
        self.column = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.graphs = {}
        self.pool: Any = None

    def _draw_all(
        self, prompts: Sequence[Sequence[int]], draws: torch.Tensor, answers: dict[int, Answer], listen: Listener | None
    ) -> None:
        """Fill `answers` of the prompts that have none."""
        assert self.cache is not None
        numbers = [number for number in range(len(prompts)) if number not in answers]
        # By length, so that prompts that are read together need little padding; equal prompts are read once.
        waiting = deque(sorted(numbers, key=lambda number: (len(prompts[number]), tuple(prompts[number]))))
        rows: list[Slot | None] = [None] * self.cache.slots
        with self.cache.masking_rows():
            while self._any_here_or_elsewhere(bool(waiting) or any(rows)):
                new = [place for place, slot in enumerate(rows) if slot is None][: len(waiting)]
                for place in new:
                    number = waiting.popleft()
                    rows[place] = Slot(number, prompts[number], draws.shape[1])
                self._read_prompts({place: slot for place in new if (slot := rows[place])})
                size = self._close_gaps(rows)
                for slot, ids in self._draw_round(rows, size, draws):
                    goes_on = listen(slot.number, ids) if listen else True
                    if not goes_on or slot.answer.is_finished(self.choice.ends, slot.most):
                        answers[slot.number] = slot.answer
                        rows[rows.index(slot)] = None

    def _any_here_or_elsewhere(self, here: bool) -> bool:
        return bool(self.agree(int(here))) if self.agree else here

    def _read_prompts(self, slots: dict[int, Slot]) -> None:
        """Keep keys and values of all but the last token of prompts, which go to these places."""
        places = {prompt: list[int]() for prompt in (tuple(slot.prompt[:-1]) for slot in slots.values()) if prompt}
        for place, slot in slots.items():
            if len(slot.prompt) > 1:
                places[tuple(slot.prompt[:-1])].append(place)
        batches, batch = list[list[tuple[int, ...]]](), list[tuple[int, ...]]()
        for prompt in sorted(places, key=len):
            if batch and (len(batch) + 1) * len(prompt) > PREFILL_TOKENS:
                batches.append(batch)
                batch = []
            batch.append(prompt)
        if batch:
            batches.append(batch)
        passes = self.agree(len(batches)) if self.agree else len(batches)
        for number in range(passes):
            part = batches[number] if number < len(batches) else []
            self._read_batch(part, [places[prompt] for prompt in part])

    def _read_batch(self, prompts: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> None:
        """One forward pass over prompts, each for some places; of none over a token that nobody reads."""
        assert self.cache is not None
        width = max(map(len, prompts), default=1)
        ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts] or [[0]])
        pairs = [(place, row) for row, row_places in enumerate(places) for place in row_places]
        self.positions.computed += ids.numel()
        self.positions.idle += ids.numel() - sum(map(len, prompts))
        inputs = self._to_device(ids)
        spread = torch.arange(width, device=self.device).expand(len(ids), width)
        columns = self._to_device(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2))
        self.cache.width, self.cache.targets = width, (columns[:, 0], columns[:, 1])
        try:  # padding is on the right, out of sight of what stands before it
            self.following(inputs, None, spread, self.cache)
        finally:
            self.cache.targets = None

    def _close_gaps(self, rows: list[Slot | None]) -> int:
        """How many of the first rows the next tokens are drawn for. Answers behind them move into gaps."""
        assert self.cache is not None
        size = min(len(rows), even_size(max(1, sum(slot is not None for slot in rows))))
        sources = [place for place in range(size, len(rows)) if rows[place]]
        if sources:
            targets = [place for place in range(size) if not rows[place]][: len(sources)]
            self.cache.move_rows(sources, targets)
            for source, target in zip(sources, targets, strict=True):
                rows[target], rows[source] = rows[source], None
        return size

    def _draw_round(self, rows: Sequence[Slot | None], size: int, draws: torch.Tensor) -> list[tuple[Slot, list[int]]]:
        """Draw up to `stride` tokens for the first `size` rows: (answer, its new tokens) of each. Waits for the device once."""
        assert self.cache is not None
        live = [(place, slot) for place, slot in enumerate(rows[:size]) if slot]
        left = [slot.most - len(slot.answer.ids) for _, slot in live]
        steps = self.stride if self.agree else min(self.stride, max(left))
        state = torch.zeros((size, 2), dtype=torch.int64)
        chance = torch.zeros((size, self.stride), dtype=torch.float64)
        for place, slot in live:
            state[place] = torch.tensor(slot.next_input())
            begin = len(slot.answer.ids)
            part = draws[slot.number, begin : begin + self.stride]
            chance[place, : len(part)] = part
        last = max((int(place) for place in state[:, 1]), default=0) + steps
        visible = min(self.cache.length, -(-last // self.block) * self.block)
        state = self._to_device(state)
        self.tokens[:size].copy_(state[:, :1])
        self.cache.places[:size].copy_(state[:, 1])
        self.draws[:size].copy_(self._to_device(chance))
        self.column.zero_()
        for _ in range(steps):
            self._run_step(size, visible)
        self.positions.computed += size * steps
        self.positions.idle += size * steps
        drawn = self.drawn[:size].cpu()
        added = []
        for place, slot in live:
            ids, nats = drawn[place, 0, :steps].long().tolist(), drawn[place, 1, :steps].tolist()
            new = slot.answer.add_tokens(ids, nats if self.choice.with_nats else [], self.choice.ends, slot.most)
            self.positions.idle -= len(new)
            added.append((slot, new))
        return added

    def _to_device(self, value: torch.Tensor) -> torch.Tensor:
        """A copy on the device, for which the host does not wait."""
        if self.device.type != "cuda":
            return value.to(self.device)
        return value.pin_memory().to(self.device, non_blocking=True)

    def _run_step(self, rows: int, visible: int) -> None:
        """One token of each of the first rows: as it is written if it is new, or cannot be captured; then as a graph."""
        assert self.cache is not None
        self.cache.rows, self.cache.visible = rows, visible
        shape = rows, visible
        if not self.captured:
            self._step()
        elif shape not in self.graphs:
            self.graphs[shape] = None
            self._step()
        else:
            self._replay_step(shape)

    def _replay_step(self, shape: tuple[int, int]) -> None:
        """Run the graph of a shape, which is captured first if it is not there."""
        if self.graphs[shape] is None:
            try:
                self.graphs[shape] = self._capture_step()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                log.warning("tokens are drawn without a CUDA graph: %s", str(error).partition("\n")[0])
                self.captured = False
                self._step()
                return
        self.graphs[shape].replay()

    def _capture_step(self) -> Any:
        """The graph of `_step`, which shares its memory with the others: none of them leaves anything in it."""
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            self._step()
        return graph

    def _step(self) -> None:
        """Read one token of each row and draw the next. All that it reads and writes stays at its address."""
        assert self.cache is not None
        rows = self.cache.rows
        tokens, places = self.tokens[:rows], self.cache.places[:rows]
        logits, _ = self.following(tokens, None, places[:, None], self.cache)
        draw = self.draws[:rows].index_select(1, self.column)[:, 0]
        chosen = self.choice.pick_tokens(logits, draw)
        self.drawn[:rows, 0].index_copy_(1, self.column, chosen[:, None].double())
        if self.choice.with_nats:
            nats = sampling.token_nats(logits, chosen)
            self.drawn[:rows, 1].index_copy_(1, self.column, nats[:, None].double())
        tokens.copy_(chosen[:, None])
        places.add_(1).clamp_(max=self.cache.length - 1)  # a row whose answer has ended goes on until the host looks
        self.column.add_(1)


class TogetherDrawer:
    """Draws the answers to all prompts that it is given at once, with keys and values that grow."""

    def __init__(
        self, following: Following, device: torch.device, choice: Choice,
        goes_on: Callable[[torch.Tensor], bool] = sampling.any_unfinished_here,
    ) -> None:  # fmt: skip
        self.following, self.device, self.choice, self.goes_on = following, device, choice, goes_on
        self.stride = STRIDE if device.type == "cuda" else 1

    def set_choice(self, choice: Choice) -> None:
        """As `SlotDrawer.set_choice`."""
        self.choice = choice

    def draw(
        self, prompts: Sequence[Sequence[int]], draws: torch.Tensor, listen: Listener | None = None
    ) -> list[Answer]:
        """As `SlotDrawer.draw`."""
        stride = 1 if listen else self.stride
        return sampling.draw_together(
            self.following, prompts, draws.to(self.device), self.choice, self.goes_on, stride, listen
        )


def drawer_for(model: Any, choice: Choice, slots: int, stride: int | None = None) -> SlotDrawer | TogetherDrawer:
    """What draws a loaded model's answers: on a GPU in slots, if its type can; on a CPU all of a batch together, which is faster there."""
    following = partial(sampling.next_logits, model)
    if model.device.type != "cuda":
        return TogetherDrawer(following, model.device, choice)
    if not can_use_slots(model):
        log.info(
            "model type %s with %s attention: keys and values grow with each token, and no graph is captured; in place are those of %s",
            model.config.model_type, model.config._attn_implementation, ", ".join(SLOT_TYPES),
        )  # fmt: skip
        return TogetherDrawer(following, model.device, choice)
    return SlotDrawer(following, model.device, choice, slots, stride=stride)


def largest_of_processes(device: torch.device, number: int) -> int:
    """The largest of the numbers that all processes give. A collective call."""
    value = torch.tensor(number, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value)
