"""Functions that numba, which vLLM brings along, compiles to machine code.

Twenty times faster than numpy where few elements count, and they release the GIL. Compiled code is
kept beside its file or, where that is not writable, in the user's cache directory; failing both it
is compiled anew in each process (some ten seconds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba  # type: ignore[import-untyped]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """For a function that Python calls."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba found no writable place for its cache
        return cast(F, numba.njit(nogil=True)(function))


def inlined(function: F) -> F:
    """For a part of such functions. Only in their own file: what is kept knows of no other."""
    return cast(F, numba.njit(nogil=True, forceinline=True)(function))
