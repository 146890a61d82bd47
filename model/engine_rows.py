"""Runs rows in the AsyncLLM, one task a row, and tells vLLM's errors apart."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import defaultdict
from collections.abc import AsyncIterator

from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from model.completion import (
    Completion,
    EngineRequest,
    StreamedCompletion,
    to_chunks,
    to_completion,
)
from model.engine_call import Call
from model.engine_loop import EngineLoop
from model.errors import EngineError, EngineUnavailable, FormlineError, RowError
from model.reasoning import ReasoningSplitter
from model.supervisor import Supervisor
from model.window import Window

_NOT_ENDS = {"abort", "error"}  # finish reasons of vLLM that leave half an answer


class EngineRows:
    """The loop's side of all calls. `start` and `abort` may be called from any thread.

    A row's priority in vLLM's queue is the number of rows its call has in the engine already, so
    that a short call's rows go before a long one's.
    """

    def __init__(self, loop: EngineLoop, supervisor: Supervisor, window: Window) -> None:
        self._loop, self._supervisor, self._window = loop, supervisor, window
        self._tasks: defaultdict[Call, set[asyncio.Task[None]]] = defaultdict(set)
        self._numbers = itertools.count()

    def start(self, call: Call, position: int, request: EngineRequest) -> None:
        """Runs one row; delivers its outcome to `call` and releases its slot."""
        try:
            self._loop.call_soon(self._start, call, position, request)
        except RuntimeError:  # the loop has stopped
            self._window.release(call.share)
            call.deliver(position, EngineUnavailable("the engine was shut down"))

    def abort(self, call: Call) -> None:
        """Aborts the call's rows in the engine."""
        try:
            self._loop.call_soon(self._abort, call)
        except RuntimeError:
            return  # the loop has stopped, and every row with it

    def _start(self, call: Call, position: int, request: EngineRequest) -> None:
        task = asyncio.create_task(self._run(call, position, request))
        for tasks in (self._tasks[call], self._supervisor.rows):
            tasks.add(task)
        task.add_done_callback(lambda task: self._done(call, task))

    def _abort(self, call: Call) -> None:
        for task in self._tasks.get(call, ()):
            task.cancel()

    def _done(self, call: Call, task: asyncio.Task[None]) -> None:
        self._supervisor.rows.discard(task)
        tasks = self._tasks[call]
        tasks.discard(task)
        if not tasks:
            del self._tasks[call]
        self._window.release(call.share)

    async def _run(self, call: Call, position: int, request: EngineRequest) -> None:
        call.deliver(position, await self._outcome(call, position, request))

    async def _outcome(
        self, call: Call, position: int, request: EngineRequest
    ) -> Completion | FormlineError:
        try:
            completion = await self._answer(call, position, request)
        except FormlineError as error:
            return error
        except asyncio.CancelledError:
            return EngineUnavailable("the row was aborted before it was done")
        except EngineDeadError:
            self._supervisor.engine_died()
            return EngineUnavailable("the engine died before this row was done")
        except (VLLMClientError, ValueError) as error:
            return RowError(str(error))
        except Exception as error:  # noqa: BLE001 (one row's fault must not end the others)
            return EngineError(f"the engine failed on this row: {error or type(error).__name__}")
        self._supervisor.row_answered()
        stopped = {choice.finish_reason for choice in completion.choices} & _NOT_ENDS
        return (
            EngineError(f"the engine stopped this row ({', '.join(stopped)})")
            if stopped
            else completion
        )

    async def _answer(self, call: Call, position: int, request: EngineRequest) -> Completion:
        splitter = self._supervisor.splitter if request.reasoning else None
        if call.streaming:
            return await self._stream(call, position, request, splitter)
        async for output in self._outputs(call, request, RequestOutputKind.FINAL_ONLY):
            completion = to_completion(output)
        return splitter.split(completion) if splitter else completion

    async def _stream(
        self,
        call: Call,
        position: int,
        request: EngineRequest,
        splitter: ReasoningSplitter | None,
    ) -> Completion:
        whole = StreamedCompletion(len(request.prompt_token_ids))
        thinking = splitter.stream(request.prompt_token_ids) if splitter else None
        async for output in self._outputs(call, request, RequestOutputKind.DELTA):
            for chunk in to_chunks(output):
                split = thinking.split(chunk) if thinking else chunk
                whole.add(split, output)
                call.deliver(position, split)
        return whole.completion()

    def _outputs(
        self, call: Call, request: EngineRequest, kind: RequestOutputKind
    ) -> AsyncIterator[RequestOutput]:
        params = request.sampling_params
        params.output_kind = kind
        outputs: AsyncIterator[RequestOutput] = self._supervisor.llm.generate(
            tokens_input(request.prompt_token_ids),
            params,
            request_id=f"{os.getpid()}-{next(self._numbers)}",
            priority=call.share.held,
            reasoning_ended=None if request.reasoning else True,
        )
        return outputs
