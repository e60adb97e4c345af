"""What lm-evaluation-harness has a model score or write, where it does not fit the model's context."""

from __future__ import annotations

from functools import partial
from typing import Any

from scripts.workflow.console import Progress


class Bounded:
    """Watches what lm-eval has a model score: which requests do not fit its context.

    The harness cuts a request that is too long on its left, which is recorded; where the answer alone is too long, the item does not count.
    """

    def __init__(self, lm: Any) -> None:
        self.most, self.inner, self.eos = int(lm.max_length), lm._loglikelihood_tokens, int(lm.eot_token_id)
        self.cut, self.too_long = set[tuple[str, str]](), set[tuple[str, str]]()
        self.written = min(
            256, self.most // 2
        )  # tokens of an answer; lm-eval's own 256 would leave a short context no room
        self.encode = lm.tok_encode
        lm._loglikelihood_tokens = self
        lm.generate_until = partial(self.generate, lm, lm.generate_until, lm._model_generate)

    def __call__(self, requests: list[Any], **options: Any) -> Any:
        fitting = []
        for key, given, scored in requests:
            if len(scored) > self.most:
                self.too_long.add(tuple(key))
                given, scored = [self.eos], scored[-self.most :]
            elif len(given) + len(scored) > self.most + 1:
                self.cut.add(tuple(key))
            fitting.append((key, given, scored))
        return self.inner(fitting, **options)

    def generate(self, lm: Any, inner: Any, step: Any, requests: list[Any], **_: Any) -> Any:
        """lm-eval's own generation, with the project's progress lines."""
        progress = Progress(len(requests), "answers generated")

        def counted(context: Any, *args: Any, **options: Any) -> Any:
            found = step(context, *args, **options)
            progress.add(len(context))
            return found

        lm._model_generate = counted
        return inner(requests, disable_tqdm=True)

    def is_cut(self, arguments: Any, answer: Any) -> bool:
        """Whether the text of a request was longer than the context."""
        if isinstance(answer, str):
            return len(self.encode(arguments[0])) > self.most - self.written
        return tuple(arguments[:2]) in self.cut
