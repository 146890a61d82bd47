"""Whether a row's constraint can be enforced, asked before the row enters the engine."""

from __future__ import annotations

from model.constraints import peers
from model.constraints.compiling import compile_constraint
from model.constraints.spec import ConstraintSpec


def check_constraint(spec: ConstraintSpec) -> None:
    """Raises UnsupportedSchema with the pointer and keyword of what cannot be enforced."""
    if spec.backend == "formline":
        compile_constraint(spec)
    else:
        peers.check(spec)
