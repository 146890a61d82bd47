"""A fake endpoint for faults a real one cannot be made to have on demand. Real HTTP, no model.

It answers `{"predictions": [...]}` with benchmarks.fake_target's answers, after whatever faults it
was told to have.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from benchmarks.fake_target import fake_answer

Fault = tuple[int, dict[str, str], Any]  # status, headers, body
FaultOf = Callable[[list[dict[str, Any]]], Fault | None]


@dataclass
class FaultyEndpoint:
    """`faults` are given to the first calls; `fault_of` may refuse any call by its rows."""

    faults: list[Fault] = field(default_factory=list)
    fault_of: FaultOf = lambda rows: None
    calls: list[list[dict[str, Any]]] = field(default_factory=list)
    params: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    _lock: Lock = field(default_factory=Lock)

    def reply(self, body: dict[str, Any]) -> Fault:
        rows = body["dataframe_records"]
        with self._lock:
            self.calls.append(rows)
            self.params.append(body["params"])
            if self.faults:
                return self.faults.pop(0)
        predictions = [fake_answer(row.get("prompt")) for row in rows]
        return self.fault_of(rows) or (200, {}, {"predictions": predictions})


@contextlib.contextmanager
def faulty_endpoint(**settings: Any) -> Iterator[FaultyEndpoint]:
    endpoint = FaultyEndpoint(**settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, reply = endpoint.reply(body)
            content = json.dumps(reply).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/invocations"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def error(status: int, code: str, message: str, **headers: str) -> Fault:
    return status, headers, {"error_code": code, "message": message}
