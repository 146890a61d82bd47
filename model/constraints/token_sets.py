"""Sets of tokens and of nodes, in machine code: packed masks, and ranges one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.constraints.machine_code import compiled

Int32 = NDArray[np.int32]


@compiled
def set_tokens(mask: Int32, ids: Int32) -> None:
    for token in ids:
        mask[token >> 5] |= np.int32(1) << np.int32(token & 31)


@compiled
def set_nodes(mask: Int32, first_token: Int32, token_ids: Int32, nodes: Int32) -> None:
    """The tokens that end at any of the nodes."""
    for node in nodes:
        for place in range(first_token[node], first_token[node + 1]):
            token = token_ids[place]
            mask[token >> 5] |= np.int32(1) << np.int32(token & 31)


@compiled
def set_where(mask: Int32, ids: Int32, places: Int32, is_open: NDArray[np.bool_]) -> None:
    """The tokens whose place is open."""
    for at in range(len(ids)):
        if is_open[places[at]]:
            token = ids[at]
            mask[token >> 5] |= np.int32(1) << np.int32(token & 31)


@compiled
def gather(begin: Int32, count: Int32, nodes: Int32) -> Int32:
    """begin[n] .. begin[n] + count[n] - 1 of each node, one after the other."""
    total = 0
    for node in nodes:
        total += count[node]
    found = np.empty(total, dtype=np.int32)
    at = 0
    for node in nodes:
        for place in range(count[node]):
            found[at] = begin[node] + place
            at += 1
    return found


def warm_up() -> None:
    """Loads or compiles the code now."""
    mask, none = np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.int32)
    set_tokens(mask, none)
    set_nodes(mask, none, none, none)
    set_where(mask, none, none, np.empty(0, dtype=np.bool_))
    gather(none, none, none)
