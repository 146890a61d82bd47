"""Formline inside vLLM's own processes: they end with their parent, say why they failed, and
measure what constraints cost.

vLLM calls `install` in each of its processes (a `vllm.general_plugins` entry point). A failed start
reaches the parent only as "initialization failed"; the reason goes through the file named by
REPORT_VAR, one JSON object a line: `process`, `error` (the exception's type), `message`.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

REPORT_VAR = "FORMLINE_ENGINE_REPORT"
PLUGINS = str(Path(__file__).parent / "vllm_plugin")

_ENGINE, _WORKER = "EngineCore", "VllmWorker"
_LOOK_EVERY_S = 1.0
_GRACE_S = 5.0

_installed = False


def announce() -> None:
    """Makes vLLM find `install`, here and in the processes that it starts from here."""
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)


def install() -> None:
    """Called by vLLM, more than once, in the caller's process too, where it does nothing."""
    global _installed
    process = multiprocessing.current_process().name
    if _installed or not process.startswith((_ENGINE, _WORKER)):
        return
    _installed = True
    if report := os.environ.get(REPORT_VAR):
        logging.getLogger("vllm").addHandler(_Reporter(process, Path(report)))
    # Workers too: vLLM's own watch over their parent begins only when they are ready.
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    if process.startswith(_ENGINE):
        from model.constraint_metrics import meter  # constraints are compiled in this process

        meter()


def _end_with_parent(parent: int) -> None:
    """Ends this process soon after its parent is gone, however the parent ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


class _Reporter(logging.Handler):
    """Appends each logged exception to the report."""

    def __init__(self, process: str, report: Path) -> None:
        super().__init__(logging.ERROR)
        self._process, self._report = process, report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not self._report.exists():  # the start is over, and reported on
            return
        entry = {
            "process": self._process,
            "error": type(error).__name__,
            "message": str(error)[:2000],
        }
        with self._report.open("a") as file:
            file.write(json.dumps(entry) + "\n")
