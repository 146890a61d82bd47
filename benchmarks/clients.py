"""Many HTTP clients at once, in a process of their own so that they share nobody's interpreter.

    python -m benchmarks.clients URL    payloads as a JSON list on standard input

Sends every payload from a thread of its own, all at the same moment; prints
`{"seconds": ..., "replies": [...]}`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

TIMEOUT_S = 1800.0


def send_all(url: str, payloads: list[Any]) -> dict[str, Any]:
    """Seconds from the common start to the last reply, and the replies in order."""
    ready = threading.Barrier(len(payloads) + 1)

    def send(payload: Any) -> Any:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            ready.wait()
            return client.post(f"{url}/invocations", json=payload).raise_for_status().json()

    with ThreadPoolExecutor(len(payloads)) as pool:
        replies = [pool.submit(send, payload) for payload in payloads]
        ready.wait()
        began = time.perf_counter()
        answers = [reply.result() for reply in replies]
    return {"seconds": time.perf_counter() - began, "replies": answers}


if __name__ == "__main__":
    print(json.dumps(send_all(sys.argv[1], json.load(sys.stdin))))
