"""OpenAI's request bodies, and the model's rows they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from serving.openai_tools import Tools

MAX_TOP_LOGPROBS = 20
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "response_format",
    "json_schema",
    "regex",
    "choice",
    "grammar",
)


class StreamOptions(BaseModel):
    include_usage: bool = False


class SamplingRequest(BaseModel):
    """What both kinds of completion share. Values are checked by the model, as in any row."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=64)] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The fields that go into a row under the same name."""
        values = {name: getattr(self, name) for name in SAMPLING}
        return {name: value for name, value in values.items() if value is not None}

    @model_validator(mode="after")
    def one_answer_with_logprobs(self) -> Self:
        """A row keeps the log probabilities of its first answer only."""
        if (self.n or 1) > 1 and getattr(self, "logprobs", None):
            raise ValueError("logprobs need n to be 1")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk that holds the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class Function(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: NamedFunction


class ChatTemplateKwargs(BaseModel):
    """Only the thinking switch: a caller's template arguments never reach the template."""

    model_config = ConfigDict(extra="forbid")
    enable_thinking: bool | None = None


class ChatRequest(SamplingRequest):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None

    @property
    def top(self) -> int:
        """How many of the likeliest tokens to tell, where any are asked for."""
        return self.top_logprobs or 0


class CompletionRequest(SamplingRequest):
    """The body of /v1/completions."""

    prompt: str | Annotated[list[str], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: Literal[False] = False

    @property
    def top(self) -> int:
        """How many of the likeliest tokens to tell, where any are asked for."""
        return self.logprobs or 0

    @property
    def prompts(self) -> list[str]:
        """One text a row."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


def chat_row(request: ChatRequest, tools: Tools) -> dict[str, Any]:
    """The one row of a chat."""
    row = {**request.sampling(), **tools.constraint(), "messages": tools.told(request.messages)}
    tokens = request.max_completion_tokens or request.max_tokens
    if tokens is not None:
        row["max_tokens"] = tokens
    if request.logprobs:
        row["logprobs"] = request.top_logprobs or 0
    thinking = request.chat_template_kwargs and request.chat_template_kwargs.enable_thinking
    if thinking is not None:
        row["enable_thinking"] = thinking
    return row


def completion_rows(request: CompletionRequest) -> list[dict[str, Any]]:
    """One row a prompt, all with the same settings."""
    settings = request.sampling()
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    if request.logprobs is not None:
        settings["logprobs"] = request.logprobs
    return [{"prompt": prompt, **settings} for prompt in request.prompts]
