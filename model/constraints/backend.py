"""vLLM's structured-output backend over our automata, in the engine process.

The contract is vllm/v1/structured_output/backend_types.py. A request may name another backend in
its ConstraintSpec; it then gets vLLM's own, in the same engine and the same batch.
"""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.exceptions import VLLMValidationError
from vllm.utils.torch_utils import PIN_MEMORY
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)

from model.constraints import peers
from model.constraints.automaton import Automaton, State
from model.constraints.cache import Automata
from model.constraints.check import check_constraint
from model.constraints.collector import collect_rarely
from model.constraints.spec import ConstraintSpec
from model.constraints.vocabulary import Vocabulary
from model.errors import FormlineError

logger = logging.getLogger("formline.constraints")

_KINDS = {
    StructuredOutputOptions.JSON_OBJECT: "json_object",
    StructuredOutputOptions.REGEX: "regex",
    StructuredOutputOptions.CHOICE: "choice",
    StructuredOutputOptions.GRAMMAR: "grammar",
}


class FormlineGrammar(StructuredOutputGrammar):
    """One row: the states after each of its tokens, the last one current.

    A stop token where the answer is complete ends the row; nothing follows it.
    """

    def __init__(self, automaton: Automaton, rows: _Rows) -> None:
        self._automaton, self._rows = automaton, rows
        self._states: list[State | None] = [automaton.start]  # None: terminated

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advances by all of the tokens, or by none and says False."""
        before = len(self._states)
        for token in tokens:
            state = self._states[-1]
            if state is None:
                break  # tokens after the end are ignored
            if token in self._automaton.stop_ids and state.can_end:
                self._states.append(None)
                continue
            after = self._automaton.after(state, token)
            if after is None:
                del self._states[before:]
                logger.error("request %s: token %d is not allowed here", request_id, token)
                return False
            self._states.append(after)
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix that `accept_tokens` would take; nothing changes."""
        state = self._states[-1]
        for index, token in enumerate(tokens):
            if state is None:
                return tokens[:index]
            is_end = token in self._automaton.stop_ids and state.can_end
            after = None if is_end else self._automaton.after(state, token)
            if after is None and not is_end:
                return tokens[:index]
            state = after
        return tokens

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            del self._states[-num_tokens:]

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        state = self._states[-1]
        assert state is not None, "a terminated row has no mask"
        self._rows.of(bitmask)[batch_index] = self._automaton.mask(state)

    def is_terminated(self) -> bool:
        return self._states[-1] is None

    def reset(self) -> None:
        del self._states[1:]


class _Rows:
    """The batch's bitmask as a numpy array: a numpy row copy costs a fifth of a torch one."""

    def __init__(self) -> None:
        self._last: tuple[torch.Tensor, NDArray[np.int32]] | None = None

    def of(self, bitmask: torch.Tensor) -> NDArray[np.int32]:
        last = self._last
        if last is None or last[0] is not bitmask:
            last = self._last = (bitmask, bitmask.numpy())
        return last[1]


class FormlineBackend(StructuredOutputBackend):
    """Compiles constraints for one engine; several threads may call it at once."""

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        super().__init__(vllm_config, tokenizer, vocab_size)
        collect_rarely()
        self._automata = Automata(Vocabulary.from_tokenizer(tokenizer, vocab_size))
        self._rows = _Rows()
        self._peers: dict[str, StructuredOutputBackend] = {}
        self._lock = Lock()

    def compile_grammar(
        self,
        request_type: StructuredOutputOptions,
        grammar_spec: str,
        stop_token_ids: set[int] | None = None,
    ) -> StructuredOutputGrammar:
        """The row's grammar. What it raises becomes that row's error and no other's."""
        started = time.perf_counter()
        spec = _read(request_type, grammar_spec)
        if spec.backend != "formline":
            return self._peer(spec.backend).compile_grammar(*peers.key_of(spec), stop_token_ids)
        stops = frozenset(stop_token_ids or self._automata.masks.vocabulary.eos_ids)
        automaton = self._automata.get(spec, stops)
        logger.debug("compiled in %.1f ms", (time.perf_counter() - started) * 1e3)
        return FormlineGrammar(automaton, self._rows)

    def _peer(self, name: str) -> StructuredOutputBackend:
        with self._lock:
            if name not in self._peers:
                self._peers[name] = peers.make(
                    name, self.vllm_config, self.tokenizer, self.vocab_size
                )
            return self._peers[name]

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        words = -(-self.vocab_size // 32)
        return torch.full((max_num_seqs, words), -1, dtype=torch.int32, pin_memory=PIN_MEMORY)

    def destroy(self) -> None:
        for backend in self._peers.values():
            backend.destroy()
        self._peers.clear()


def _read(request_type: StructuredOutputOptions, text: str) -> ConstraintSpec:
    if request_type is StructuredOutputOptions.JSON:
        return ConstraintSpec.from_text(text)
    if request_type not in _KINDS:
        raise ValueError(f"{request_type.name} is not supported; use xgrammar or guidance")
    return ConstraintSpec(_KINDS[request_type], text)  # type: ignore[arg-type]


def validate_request(params: Any) -> None:
    """vLLM's check of a request before it enters the engine; raises VLLMValidationError."""
    outputs = params.structured_outputs
    if outputs is None:
        return
    from vllm.v1.structured_output.request import get_structured_output_key

    try:
        check_constraint(_read(*get_structured_output_key(outputs)))
    except (FormlineError, ValueError) as error:
        raise VLLMValidationError(str(error)) from error
