"""All endpoints of this server: made, changed, kept over a restart, and stopped together."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from serving.endpoint import Endpoint
from serving.errors import ApiError, not_found
from serving.launching import check_entity
from serving.schemas import EndpointConfig, EndpointCreate, Tag, TagsPatch
from serving.settings import Settings
from serving.store import ConfigRecord, EndpointRecord, Store

MAX_TAGS = 20


class Supervisor:
    """Endpoints by name. Every method is called on the server's event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.endpoints: dict[str, Endpoint] = {}
        self._store = Store(settings.state_dir)
        self._sockets = Path(tempfile.mkdtemp(prefix="formline-"))

    def start(self) -> None:
        """Bring back the endpoints of the last run."""
        for record in self._store.load():
            self.endpoints[record.name] = self._live(record)
            self.endpoints[record.name].resume()

    async def stop(self) -> None:
        """End every process; the endpoints stay in the store."""
        await asyncio.gather(*(endpoint.stop() for endpoint in self.endpoints.values()))
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._store.close()

    def get(self, name: str) -> Endpoint:
        """The endpoint, or 404."""
        if name not in self.endpoints:
            raise not_found(name)
        return self.endpoints[name]

    async def create(self, request: EndpointCreate) -> Endpoint:
        """A new endpoint, its first config being rolled out."""
        self._refuse_taken(request.name)
        await self._check(request.config)
        self._refuse_taken(request.name)
        endpoint = self.endpoints[request.name] = self._live(EndpointRecord.of(request))
        endpoint.update(ConfigRecord.of(request.config, 1))
        return endpoint

    async def update_config(self, name: str, config: EndpointConfig) -> Endpoint:
        """Roll out another config, unless one is being rolled out."""
        self._refuse_updating(self.get(name))
        whole = self._completed(self.get(name), config)
        await self._check(whole)
        endpoint = self.get(name)
        self._refuse_updating(endpoint)
        endpoint.update(ConfigRecord.of(whole, endpoint.record.versions + 1))
        return endpoint

    async def delete(self, name: str) -> None:
        """Forget the endpoint at once, then end its processes."""
        endpoint = self.get(name)
        del self.endpoints[name]
        self._store.delete(name)
        await endpoint.stop()

    def patch_tags(self, name: str, patch: TagsPatch) -> list[Tag]:
        """Add or replace, then delete, tags by key."""
        there = self.get(name).record.tags
        tags = {tag.key: tag for tag in [*there, *(patch.add_tags or [])]}
        kept = [tag for key, tag in tags.items() if key not in (patch.delete_tags or [])]
        if len(kept) > MAX_TAGS:
            raise ApiError(
                400, f"An endpoint has at most {MAX_TAGS} tags; this would make {len(kept)}."
            )
        self.change(name, tags=kept)
        return kept

    def change(self, name: str, **settings: Any) -> Endpoint:
        """Replace settings, by their names in EndpointRecord, that roll nothing out."""
        endpoint = self.get(name)
        for field, value in settings.items():
            setattr(endpoint.record, field, value)
        endpoint.changed()
        return endpoint

    def _live(self, record: EndpointRecord) -> Endpoint:
        return Endpoint(record, self.settings, self._sockets, self._save)

    def _save(self, record: EndpointRecord) -> None:
        """A deleted endpoint's last tasks must not bring its record back."""
        live = self.endpoints.get(record.name)
        if live is not None and live.record is record:
            self._store.save(record)

    async def _check(self, config: EndpointConfig) -> None:
        if not config.served_entities:
            raise ApiError(
                400, "config.served_entities: name at least one registered version to serve."
            )
        for entity in config.served_entities:
            await asyncio.to_thread(check_entity, self.settings, entity)

    def _completed(self, endpoint: Endpoint, config: EndpointConfig) -> EndpointConfig:
        """An update may name only the traffic; the entities then stay."""
        if config.served_entities or endpoint.record.config is None:
            return config
        kept = endpoint.record.config.served_entities
        return EndpointConfig.model_validate({**dict(config), "served_entities": kept})

    def _refuse_taken(self, name: str) -> None:
        if name in self.endpoints:
            message = (
                f"Endpoint with name {name!r} already exists. Update it, or choose another name."
            )
            raise ApiError(400, message, code="RESOURCE_ALREADY_EXISTS")

    def _refuse_updating(self, endpoint: Endpoint) -> None:
        if endpoint.record.config_update == "IN_PROGRESS":
            raise ApiError(
                409,
                f"{endpoint.record.name} is being updated; wait until that has ended.",
            )
