"""What a user sees while rows are answered: a live bar, a notebook's line, or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from scoring.checkpoint import ChunkRecord

PLAIN_EVERY_S = 10.0
NOTEBOOK_EVERY_S = 0.5


@dataclass
class Tally:
    """Running totals. Rates are those of this run; rows finished by earlier runs add no speed."""

    total: int | None
    rows: int = 0
    valid: int = 0
    errors: int = 0
    copied: int = 0
    tokens: int = 0
    fresh_rows: int = 0
    fresh_tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, record: ChunkRecord, *, fresh: bool = True) -> None:
        self.rows += record.rows
        self.valid += record.answered
        self.errors += record.errors
        self.copied += record.copied
        self.tokens += record.completion_tokens
        if fresh:
            self.fresh_rows += record.rows
            self.fresh_tokens += record.completion_tokens

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-6)

    @property
    def rows_per_s(self) -> float:
        return self.fresh_rows / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.fresh_tokens / self.seconds

    @property
    def eta_s(self) -> float | None:
        if self.total is None or not self.fresh_rows:
            return None
        return (self.total - self.rows) / self.rows_per_s

    def figures(self) -> str:
        eta = "" if self.eta_s is None else f", {duration(self.eta_s)} left"
        return (
            f"{self.rows_per_s:,.1f} rows/s, {self.tokens_per_s:,.0f} tokens/s, "
            f"{self.valid:,} valid, {self.errors:,} errors{eta}"
        )

    def line(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.rows:,}{of} rows: {self.figures()}"


def duration(seconds: float) -> str:
    """3725 -> 1:02:05"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class View(Protocol):
    """Shows a tally."""

    def show(self, tally: Tally) -> None: ...
    def close(self, tally: Tally) -> None: ...


class LiveBar:
    """A bar that redraws itself, on a terminal's standard error."""

    def __init__(self, total: int | None) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("rows", total=total, figures="")
        self._bar.start()

    def show(self, tally: Tally) -> None:
        self._bar.update(self._task, completed=tally.rows, figures=tally.figures())

    def close(self, tally: Tally) -> None:
        self.show(tally)
        self._bar.stop()


class Lines:
    """A line now and then, through `write`."""

    def __init__(self, write: Callable[[str], None], every_s: float) -> None:
        self._write, self._every_s = write, every_s
        self._last = time.monotonic()

    def show(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._last >= self._every_s:
            self._last = now
            self._write(tally.line())

    def close(self, tally: Tally) -> None:
        self._write(tally.line())


class Quiet:
    """Nothing."""

    def show(self, tally: Tally) -> None:
        """Shows nothing."""

    def close(self, tally: Tally) -> None:
        """Shows nothing."""


def view(total: int | None, quiet: bool = False) -> View:
    """The view that fits where this runs."""
    if quiet:
        return Quiet()
    if _in_notebook():
        return Lines(_notebook_writer(), NOTEBOOK_EVERY_S)
    if sys.stderr.isatty():
        return LiveBar(total)
    return Lines(lambda text: print(text, file=sys.stderr, flush=True), PLAIN_EVERY_S)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _notebook_writer() -> Callable[[str], None]:
    """Writes over its own last line in the cell's output."""
    import IPython.display

    display: Any = IPython.display.display
    shown = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: shown.update({"text/plain": text}, raw=True)


class Reporter:
    """The pipeline's Progress: tallies finished chunks and tells whoever listens. Thread-safe."""

    def __init__(self, tally: Tally, listeners: Sequence[Callable[[Tally], None]]) -> None:
        self.tally = tally
        self._listeners = listeners
        self._lock = Lock()

    def add(self, record: ChunkRecord) -> None:
        with self._lock:
            self.tally.add(record)
            for listener in self._listeners:
                listener(self.tally)
