"""`{{secrets/scope/key}}` in environment variables, read from this server's own environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from serving.errors import ApiError

SECRET = re.compile(r"^\{\{secrets/([A-Za-z0-9_.-]+)/([A-Za-z0-9_.-]+)\}\}$")


def resolve_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Put the value in place of each reference. Raises ApiError for one that is not set here."""
    return {name: _resolved(name, value) for name, value in variables.items()}


def secret_variable(scope: str, key: str) -> str:
    """The server's own variable that stands for one secret."""
    return "FORMLINE_SECRET_" + re.sub(r"[^A-Za-z0-9]", "_", f"{scope}_{key}").upper()


def _resolved(name: str, value: str) -> str:
    match = SECRET.match(value)
    if match is None:
        return value
    source = secret_variable(*match.groups())
    if source not in os.environ:
        raise ApiError(
            400,
            f"environment_vars.{name} is the secret {value}; start the server with {source} set.",
        )
    return os.environ[source]
