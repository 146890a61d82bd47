"""One endpoint: roll out a config beside the running one, then swap and drain."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from serving.errors import ApiError
from serving.launching import preparer
from serving.limits import RateLimiter
from serving.router import Router
from serving.schemas import RateLimit, ServedEntityInput
from serving.served_entity import STOPPED, ServedEntity
from serving.settings import Settings
from serving.store import ConfigRecord, EndpointRecord, now_ms

logger = logging.getLogger(__name__)
_runs = itertools.count(1)


class Endpoint:
    """The live side of an EndpointRecord. `save` is called after every change of the record."""

    def __init__(
        self,
        record: EndpointRecord,
        settings: Settings,
        sockets: Path,
        save: Callable[[EndpointRecord], None],
    ) -> None:
        self.record, self._settings, self._sockets, self._save = record, settings, sockets, save
        self.active: dict[str, ServedEntity] = {}
        self.pending: dict[str, ServedEntity] = {}
        self.rate_limiter = RateLimiter()
        self._router = Router([])
        self._retiring: set[ServedEntity] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        """Whether every routed entity of the active config can answer."""
        return bool(self.active) and all(entity.usable for entity in self.active.values())

    @property
    def rate_limits(self) -> list[RateLimit]:
        """Those of the endpoint and those of its AI Gateway."""
        gateway = self.record.ai_gateway
        return [*self.record.rate_limits, *((gateway and gateway.rate_limits) or [])]

    def pick(self) -> ServedEntity:
        """The entity that the next call goes to."""
        name = self._router.pick()
        if name is None or name not in self.active:
            raise ApiError(400, self._why_not_ready(), code="INVALID_STATE")
        return self.active[name]

    def named(self, name: str) -> ServedEntity:
        """The entity of that name, whatever its share of the traffic."""
        if name not in self.active:
            raise ApiError(
                404, f"{self.record.name} serves no {name!r}; it serves {list(self.active)}."
            )
        return self.active[name]

    def resume(self) -> None:
        """After a restart: serve what was served, and go on with an update that was under way."""
        if self.record.config is not None:
            self._activate(self.record.config, self._entities(self.record.config))
            for entity in self.active.values():
                entity.start()
        if self.record.pending_config is None:
            return
        if self.record.config_update == "IN_PROGRESS":
            self._roll_out_soon(self.record.pending_config)
        else:
            self._recall_failure(self.record.pending_config)

    def update(self, config: ConfigRecord) -> None:
        """Begin to roll out `config`; the active one serves until it is ready."""
        self.record.pending_config, self.record.config_update = config, "IN_PROGRESS"
        self.record.versions = config.config_version
        self.changed()
        self._roll_out_soon(config)

    def changed(self) -> None:
        """Note the time, and keep the record."""
        self.record.updated_ms = now_ms()
        self._save(self.record)

    async def stop(self) -> None:
        """End every process of this endpoint."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        everything = {*self.active.values(), *self.pending.values(), *self._retiring}
        await asyncio.gather(*(entity.stop() for entity in everything))

    def _roll_out_soon(self, config: ConfigRecord) -> None:
        self._spawn(
            asyncio.create_task(self._roll_out(config), name=f"roll out {self.record.name}")
        )

    def _spawn(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: a task failed", self.record.name, exc_info=task.exception())

    async def _roll_out(self, config: ConfigRecord) -> None:
        """Start what is new, wait for it, then swap; or leave everything as it was."""
        self._retire(self.pending.values())
        self.pending = self._entities(config)
        fresh = [entity for entity in self.pending.values() if entity not in self.active.values()]
        for entity in fresh:
            entity.start()
        settled = await asyncio.gather(*(entity.settle() for entity in fresh))
        if all(settled):
            self._succeed(config)
        else:
            self._fail(fresh)

    def _succeed(self, config: ConfigRecord) -> None:
        old = list(self.active.values())
        self._activate(config, self.pending)
        self.pending = {}
        self.record.config, self.record.pending_config = config, None
        self.record.failures = {}
        self.record.config_update = "NOT_UPDATING"
        self.changed()
        self._retire(entity for entity in old if entity not in self.active.values())

    def _recall_failure(self, config: ConfigRecord) -> None:
        """Show again why the last update failed."""
        self.pending = self._entities(config)
        for name, state in self.record.failures.items():
            self.pending[name].recall(state)

    def _fail(self, fresh: Sequence[ServedEntity]) -> None:
        """The failed ones stay in sight, without a process, until the next update."""
        self.record.config_update = "UPDATE_FAILED"
        self.record.failures = {e.name: STOPPED if e.usable else e.state for e in fresh}
        self.changed()
        self._retire(entity for entity in fresh if entity.usable)

    def _activate(self, config: ConfigRecord, entities: dict[str, ServedEntity]) -> None:
        for wanted in config.served_entities:
            entities[wanted.name or ""].entity = wanted
        self.active = entities
        self._router = Router(config.traffic_config.routes or [])

    def _retire(self, entities: Iterable[ServedEntity]) -> None:
        for entity in list(entities):
            if entity not in self.active.values():
                self._retiring.add(entity)
                self._spawn(asyncio.create_task(self._drain_and_stop(entity)))

    async def _drain_and_stop(self, entity: ServedEntity) -> None:
        await entity.drain(self._settings.limits.drain_s)
        await entity.stop()
        self._retiring.discard(entity)

    def _entities(self, config: ConfigRecord) -> dict[str, ServedEntity]:
        """By name: the running entity where it already serves the same thing, or a new one."""
        return {
            entity.name or "": self._reused(entity) or self._new(entity)
            for entity in config.served_entities
        }

    def _reused(self, wanted: ServedEntityInput) -> ServedEntity | None:
        running = self.active.get(wanted.name or "")
        same = (
            running is not None
            and running.usable
            and running.entity.launches_like == wanted.launches_like
        )
        return running if same else None

    def _new(self, entity: ServedEntityInput) -> ServedEntity:
        prepare = preparer(
            self._settings, self.record.name, entity, f"e{next(_runs)}", self._sockets
        )
        return ServedEntity(entity, prepare, self._settings.limits)

    def _why_not_ready(self) -> str:
        waiting = self.pending or self.active
        states = "; ".join(f"{name}: {e.deployment} {e.message}" for name, e in waiting.items())
        update = self.record.config_update
        return f"The endpoint {self.record.name!r} is not ready ({update}). {states}"
