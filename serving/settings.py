"""What one local server is told at its start; nothing reads the environment later."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Limits:
    """Databricks' own limits where it has one; sizes in bytes, times in seconds."""

    body_bytes: int = 16 * MIB
    execution_s: float = 297.0
    start_s: float = 3600.0
    drain_s: float = 297.0
    idle_s: float = 1800.0
    stop_s: float = 20.0
    unhealthy_s: float = 120.0
    probe_interval_s: float = 5.0
    restarts: int = 5
    restart_pause_s: float = 1.0
    log_bytes: int = 10 * MIB


@dataclass(frozen=True)
class Settings:
    """Where the server listens, keeps its state, and finds registered versions.

    `tokens` are the accepted bearer tokens; none means that every caller is let in,
    which is refused on any address but loopback.
    """

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    tracking_uri: str | None = None
    registry_uri: str | None = None
    tokens: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def hosts(self) -> frozenset[str]:
        """The names it answers to: any where others may come, its own on loopback."""
        return LOOPBACK_NAMES | {self.host} if self.loopback_only else frozenset()


def is_loopback(host: str) -> bool:
    """True for `localhost` and every loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
