"""What is written down of a call: metrics, one log line, and its content where that is wanted."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from model.completion import Chunk, Completion, EngineRequest
from model.errors import FormlineError
from model.events import log_event, log_row
from model.metrics import CALL_SECONDS, ROWS, TOKENS

_numbers = itertools.count(1)

Decode = Callable[[list[int]], str]


class CallRecord:
    """One call's record. `decode` turns prompt token ids into text; None keeps content private."""

    def __init__(self, rows: int | None, decode: Decode | None) -> None:
        self.call = f"call-{next(_numbers)}"
        self._rows, self._decode = rows, decode
        self._began = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    def requests(
        self, requests: Iterable[EngineRequest | FormlineError]
    ) -> Iterable[EngineRequest | FormlineError]:
        """The requests as they pass by."""
        return requests if self._decode is None else self._logged(requests, self._decode)

    def outcome(self, position: int, outcome: Completion | Chunk | FormlineError) -> None:
        """Writes down how a row ended; chunks are not ends."""
        if isinstance(outcome, Completion):
            self._answered(position, outcome)
        elif isinstance(outcome, FormlineError):
            self._count(outcome.code)

    def end(self, outcome: str) -> None:
        """Writes down that the call has ended."""
        seconds = time.monotonic() - self._began
        CALL_SECONDS.labels(outcome).observe(seconds)
        log_event(
            "call",
            call=self.call,
            outcome=outcome,
            rows=self._rows,
            outcomes=dict(self._outcomes),
            tokens=dict(self._tokens),
            seconds=round(seconds, 3),
        )

    def _answered(self, position: int, completion: Completion) -> None:
        self._count(completion.choices[0].finish_reason)
        for kind in ("prompt", "completion", "cached"):
            tokens = getattr(completion, f"{kind}_tokens")
            self._tokens[kind] += tokens
            TOKENS.labels(kind).inc(tokens)
        if self._decode is not None:
            log_row(self.call, position, "answer", completion.choices[0].text)

    def _count(self, outcome: str) -> None:
        self._outcomes[outcome] += 1
        ROWS.labels(outcome).inc()

    def _logged(
        self, requests: Iterable[EngineRequest | FormlineError], decode: Decode
    ) -> Iterator[EngineRequest | FormlineError]:
        for position, request in enumerate(requests):
            if isinstance(request, EngineRequest):
                log_row(self.call, position, "prompt", decode(request.prompt_token_ids))
            yield request
