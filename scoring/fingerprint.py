"""What makes one job another: compared before an unfinished job is continued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1  # of the part files and of how rows are cut into them
SHOWN = 80


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each thing that changed, as `params.temperature: 0 -> 0.7`."""
    old, new = _flat(before), _flat(now)
    names = dict.fromkeys([*old, *new])
    return [
        f"{name}: {_show(old.get(name))} -> {_show(new.get(name))}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, cell in value.items():
        flat |= _flat(cell, f"{name}.{key}" if name else key)
    return {key: cell for key, cell in flat.items() if cell not in (None, {})}


def _show(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
