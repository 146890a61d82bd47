"""What stops a scoring job. Row errors never do: they end in the row's `error` column.

ScoringError
├── UsageError         what was asked for cannot be done            (exit code 2)
│   └── ResumeRefused  the job differs from the one it would continue
├── TargetError        the model or the endpoint failed for good    (exit code 1)
└── Interrupted        stopped by the user; the same command goes on (exit code 1)

This package imports nothing of model/: the code that answers is the registered version's own.
"""

from __future__ import annotations


class ScoringError(Exception):
    """Base of all errors raised on purpose while scoring."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(ScoringError):
    """An option, a path, a column or a schema is wrong; nothing was scored."""


class ResumeRefused(UsageError):
    """The unfinished job beside the output was another one; `differences` say in what."""

    def __init__(self, differences: list[str], folder: str) -> None:
        self.differences = differences
        listed = "".join(f"\n  {line}" for line in differences)
        super().__init__(
            f"an unfinished job for this output used something else:{listed}\n"
            f"Run it again as it was to finish it, or start afresh with --restart "
            f"(drops the finished rows in {folder})."
        )


class TargetError(ScoringError):
    """The model or the endpoint cannot answer, and trying again did not help."""


class Interrupted(ScoringError):
    """The user stopped the job; all finished chunks are kept."""
