"""The console of a script whose libraries print a lot: what they print goes to a log."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console

T = TypeVar("T")
console = Console(width=100)


@contextlib.contextmanager
def chatter_to(log: Path) -> Iterator[None]:
    """Sends what libraries and child processes print into a file; the console stays ours."""
    kept = [os.dup(1), os.dup(2)]
    console.file = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        console.print(f"[red]failed[/]; what the libraries said is in {log}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


def step(title: str, work: Callable[[], T]) -> T:
    """Runs `work` under a spinner, then says how long it took."""
    started = time.monotonic()
    with console.status(f"{title} ..."):
        result = work()
    console.print(f"[green]done[/] {title} ({time.monotonic() - started:.0f} s)")
    return result
