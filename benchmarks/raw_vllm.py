"""vLLM without Formline, in a process of its own: the reference that serving is measured against.

Reads one JSON request a line from standard input and answers each with `RESULT {json}`:
  {"do": "batch", "rows": [[token ids]], "tokens": n}     all rows in one LLM.generate
  {"do": "locked", "calls": [[[token ids]]], "tokens": n} a thread a call, one LLM, one lock: what
                                                          a hand-written PythonModel would need
Answers hold `seconds` and `tokens`, the number of tokens made.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = "RESULT "


class RawVllm:
    """The process, seen from outside. `started_s` is from its first import to its first answer."""

    def __init__(self, weights: str, engine_args: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.raw_vllm", weights, json.dumps(engine_args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.started_s = float(self._answer()["seconds"])

    def batch(self, rows: list[list[int]], tokens: int) -> dict[str, float]:
        """All rows at once."""
        return self._ask(do="batch", rows=rows, tokens=tokens)

    def locked(self, calls: list[list[list[int]]], tokens: int) -> dict[str, float]:
        """Calls from threads that take turns."""
        return self._ask(do="locked", calls=calls, tokens=tokens)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _ask(self, **request: object) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                answer: dict[str, float] = json.loads(line.removeprefix(MARK))
                return answer
        raise RuntimeError("the raw vLLM process ended; its log says why")


def _serve(weights: str, engine_args: dict[str, Any]) -> None:
    began = time.perf_counter()
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    llm = LLM(model=weights, **engine_args)
    lock = threading.Lock()

    def generate(rows: list[list[int]], tokens: int) -> int:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        prompts = [TokensPrompt(prompt_token_ids=row) for row in rows]
        with lock:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(o.outputs[0].token_ids) for o in outputs)

    def locked(calls: list[list[list[int]]], tokens: int) -> int:
        made: list[int] = []
        threads = [
            threading.Thread(target=lambda call=call: made.append(generate(call, tokens)))
            for call in calls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(made)

    _report(began, generate([[1, 2, 3]], 1))
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if request["do"] == "batch":
            _report(began, generate(request["rows"], request["tokens"]))
        else:
            _report(began, locked(request["calls"], request["tokens"]))


def _report(began: float, tokens: int) -> None:
    answer = {"seconds": time.perf_counter() - began, "tokens": tokens}
    print(MARK + json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
