"""Structured logs: one JSON object a line, on the logger "formline".

Prompts and answers are written by `log_row` alone, which is called only when `log_prompts` is on.
"""

from __future__ import annotations

import json
import logging
from typing import Any

logger = logging.getLogger("formline")


def log_event(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Writes `{"event": ..., **facts}`. Facts are counts, durations and states, never content."""
    if logger.isEnabledFor(level):
        logger.log(level, json.dumps({"event": event, **facts}, default=str))


def log_row(call: str, position: int, part: str, text: str) -> None:
    """Writes one row's content; `part` is "prompt" or "answer"."""
    log_event("row", call=call, row=position, part=part, text=text)
