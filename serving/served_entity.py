"""One served entity: start, recover after a crash, sleep, wake, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from serving.errors import ApiError
from serving.process import EntityProcess, Launch
from serving.replies import Deployment, EntityState
from serving.schemas import ServedEntityInput
from serving.settings import Limits

logger = logging.getLogger(__name__)
LONGEST_PAUSE_S = 30.0
STOPPED = EntityState(deployment="DEPLOYMENT_ABORTED", deployment_state_message="Stopped")


class ServedEntity:
    """A registered version, with at most one process behind it and a bound on calls at once.

    `settled` is set while a call knows its fate: the process is ready, or has failed for good.
    """

    def __init__(
        self, entity: ServedEntityInput, prepare: Callable[[], Launch], limits: Limits
    ) -> None:
        self.entity, self._prepare, self._limits = entity, prepare, limits
        self.deployment: Deployment = "DEPLOYMENT_CREATING"
        self.message = "Loading the model"
        self.process: EntityProcess | None = None
        self.in_flight = 0
        self.restarts = 0
        self._ever_ready = False
        self._last_used = time.monotonic()
        self._settled, self._wake, self._unused = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._unused.set()
        self._life: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name that routes and logs use."""
        return self.entity.name or ""

    @property
    def state(self) -> EntityState:
        """As the API shows it."""
        return EntityState(deployment=self.deployment, deployment_state_message=self.message)

    @property
    def usable(self) -> bool:
        """Whether a call can be answered, at once or after waking up."""
        return self.deployment == "DEPLOYMENT_READY"

    @property
    def log(self) -> str:
        """Where its process writes."""
        return str(self._prepare().log)

    def start(self) -> None:
        """Begin its life; `settle` waits for the outcome."""
        self._life = asyncio.create_task(self._live(), name=f"served entity {self.name}")

    async def settle(self) -> bool:
        """Wait until it is ready, has failed or was stopped; True when ready."""
        await self._settled.wait()
        return self.usable

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[EntityProcess]:
        """A place among the calls at once, and the process to call. Raises 429, 400 or 503."""
        self._enter()
        try:
            yield await self._awake()
        finally:
            self._leave()

    async def drain(self, limit_s: float) -> None:
        """Wait until no call is under way, for at most `limit_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._unused.wait(), limit_s)

    async def stop(self) -> None:
        """End it now."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self._stop_process()
        self.recall(STOPPED)

    def recall(self, state: EntityState) -> None:
        """Show how it ended; it has no process, and never gets one."""
        self._become(state.deployment, state.deployment_state_message, settled=True)

    def _enter(self) -> None:
        if self.in_flight >= self.entity.concurrency:
            raise ApiError(
                429,
                f"{self.name} already serves {self.in_flight} requests, the most that its "
                "workload_size allows. Retry later, or deploy a larger workload_size.",
            )
        self.in_flight += 1
        self._unused.clear()

    def _leave(self) -> None:
        self.in_flight -= 1
        self._last_used = time.monotonic()
        if self.in_flight == 0:
            self._unused.set()

    async def _awake(self) -> EntityProcess:
        self._wake.set()
        try:
            await asyncio.wait_for(self._settled.wait(), self._limits.execution_s)
        except TimeoutError:
            raise ApiError(503, f"{self.name} is not ready yet: {self.message}") from None
        if self.process is None or not self.usable:
            raise ApiError(400, f"{self.name} is down: {self.message}", code="INVALID_STATE")
        return self.process

    async def _live(self) -> None:
        """Start, serve, and start again, until stopped or failed for good."""
        failures = 0
        while True:
            started = await self._start()
            if isinstance(started, EntityProcess):
                failures, reason = 0, await self._serve(started)
            else:
                reason = started
            await self._stop_process()
            if reason is None:
                await self._sleep()
                continue
            failures += 1
            if not self._ever_ready or failures > self._limits.restarts:
                self._become("DEPLOYMENT_FAILED", reason, settled=True)
                return
            await self._pause(failures, reason)

    async def _start(self) -> EntityProcess | str:
        """A process that is ready, or why there is none."""
        try:
            self.process = process = await EntityProcess.start(self._prepare())
        except (OSError, ApiError) as error:
            return f"cannot start a process: {error}"
        reason = await process.wait_ready(self._limits.start_s)
        if reason is not None:
            return reason
        self._ever_ready = True
        self._last_used = time.monotonic()
        self._become("DEPLOYMENT_READY", "Ready", settled=True)
        return process

    async def _serve(self, process: EntityProcess) -> str | None:
        """Watch a ready process; None when it may sleep, otherwise why it must be replaced."""
        ended = asyncio.create_task(process.wait())
        healthy_at = time.monotonic()
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=self._limits.probe_interval_s)
                if self._may_sleep():
                    self._settled.clear()
                    return None
                if not ended.done() and await process.answers(self._limits.unhealthy_s):
                    healthy_at = time.monotonic()
                elif time.monotonic() - healthy_at > self._limits.unhealthy_s:
                    return f"no healthy answer for {self._limits.unhealthy_s:.0f} s"
        finally:
            ended.cancel()
        return process.failure()

    def _may_sleep(self) -> bool:
        idle_s = time.monotonic() - self._last_used
        return (
            self.entity.scale_to_zero_enabled
            and not self.in_flight
            and idle_s > self._limits.idle_s
        )

    async def _sleep(self) -> None:
        """Hold no process until the next call."""
        self._wake.clear()
        self._become("DEPLOYMENT_READY", "Scaled to zero")
        if not self.in_flight:
            await self._wake.wait()
        self._become("DEPLOYMENT_READY", "Scaling up from zero")

    async def _pause(self, failures: int, reason: str) -> None:
        self.restarts += 1
        self._become("DEPLOYMENT_RECOVERING", reason)
        logger.warning("%s: %s; restart %d", self.name, reason, self.restarts)
        await asyncio.sleep(
            min(self._limits.restart_pause_s * 2 ** (failures - 1), LONGEST_PAUSE_S)
        )

    async def _stop_process(self) -> None:
        process, self.process = self.process, None
        self._settled.clear()
        if process is not None:
            await process.stop(self._limits.stop_s)

    def _become(self, deployment: Deployment, message: str, *, settled: bool = False) -> None:
        self.deployment, self.message = deployment, message
        if settled:
            self._settled.set()
