"""Identical rows are asked once: each row's owner is the first row of the input that equals it.

Owners depend on the input alone, never on timing, so a resumed job copies the same answers. They
are kept in a SQLite file beside the parts: memory stays flat however many rows differ.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.requests import Requests

_CACHE_KIB = 4_096
_LOOKUPS_AT_ONCE = 500  # below SQLite's oldest limit of 999 variables


@dataclass(frozen=True)
class Owner:
    """Position of a row: its chunk and its place there."""

    chunk: int
    row: int


class Owners:
    """The first row of each kind, over all chunks seen so far. Chunks must come in order."""

    def __init__(self, path: Path, params: Mapping[str, Any]) -> None:
        path.unlink(missing_ok=True)
        self._params = params
        self._database = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",  # rebuilt by each run: nothing to recover
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "CREATE TABLE owners (key BLOB PRIMARY KEY, chunk INTEGER, row INTEGER) WITHOUT ROWID",
        ):
            self._database.execute(statement)

    def find(self, chunk: int, requests: Requests) -> dict[int, Owner]:
        """Position -> owner, for the chunk's rows that some earlier row equals."""
        first: dict[bytes, int] = {}
        copies: dict[int, bytes] = {}
        for position, key in self._keys(requests):
            if first.setdefault(key, position) != position:
                copies[position] = key
        known = self._known(list(first))
        fresh = [(key, chunk, row) for key, row in first.items() if key not in known]
        self._insert(fresh)
        found = {first[key]: owner for key, owner in known.items()}
        for position, key in copies.items():
            found[position] = known.get(key, Owner(chunk, first[key]))
        return found

    def close(self) -> None:
        self._database.close()

    def _keys(self, requests: Requests) -> Iterator[tuple[int, bytes]]:
        """A digest of each row that always gets the same answer: the ones at temperature 0."""
        usual = self._params.get("temperature")
        for position, row in enumerate(requests.rows):
            given = row.get("temperature")
            if _is_zero(usual if given is None else given) and position not in requests.errors:
                text = repr(row).encode("utf-8", "surrogatepass")
                yield position, hashlib.blake2b(text, digest_size=16).digest()

    def _known(self, keys: list[bytes]) -> dict[bytes, Owner]:
        found: dict[bytes, Owner] = {}
        for start in range(0, len(keys), _LOOKUPS_AT_ONCE):
            some = keys[start : start + _LOOKUPS_AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT key, chunk, row FROM owners WHERE key IN ({marks})"  # noqa: S608  marks only
            for key, chunk, row in self._database.execute(query, some):
                found[key] = Owner(chunk, row)
        return found

    def _insert(self, fresh: list[tuple[bytes, int, int]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO owners VALUES (?, ?, ?)", fresh)
        self._database.execute("COMMIT")


def _is_zero(temperature: Any) -> bool:
    try:
        return temperature is not None and float(temperature) == 0
    except (TypeError, ValueError):
        return False
