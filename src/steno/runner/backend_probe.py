"""Checks the model server given by `--backend` and asks it for the model's context window.

A wrong option raises StenoError. A server that doesn't answer is only a warning: the run will show
whether it works.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..agents import Agent, Backend
from ..agents.base import BACKEND_KEY_VARIABLE, BACKEND_KINDS, PLACEHOLDER_KEY, parse_backend
from ..errors import StenoError
from ..http_client import HttpClient, HttpResponse, is_success, status_text

PROBE_TIMEOUT_SECONDS = 3.0  # for all requests together
MAX_RESPONSE_BYTES = 8 << 20  # the model list of a large service
# Keys of the context window in model lists; the value of a loaded model comes first.
CONTEXT_WINDOW_KEYS = (
    "loaded_context_length",
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "n_ctx",
    "n_ctx_train",
)
WindowParser = Callable[[Any, str], int | None]


class ProbeRequest(NamedTuple):
    """A request, and how to find the context window in its response."""

    url: str
    body: dict[str, str] | None
    parse: WindowParser


def choose_backend(
    given: str,
    where: str,
    agent: Agent,
    model: str | None,
    environ: Mapping[str, str],
    spell: Callable[[str], str],
) -> Backend:
    """The backend that `given` names.

    `where` is the option or setting for error messages, `spell` gives the form of another one.
    """
    kind = given.partition(":")[0]
    if kind not in agent.launch.backends:
        supported = ", ".join(
            known if known == "ollama" else f"{known}:URL"
            for known in BACKEND_KINDS
            if known in agent.launch.backends
        )
        hint = f"supported: {supported}" if supported else "it only uses its vendor's servers"
        raise StenoError(f"{where} {given}: not supported by {agent.name}; {hint}")
    if model is None:
        raise StenoError(f"{where} {given}: a model is required: {spell('model')} NAME")
    return parse_backend(
        given, model, environ.get("OLLAMA_HOST"), environ.get(BACKEND_KEY_VARIABLE)
    )


def probe_backend(server: Backend, model: str) -> tuple[Backend, str | None]:
    """The backend with the context window the server reports, and a warning if it is unknown."""
    client = HttpClient(server.url, use_proxy=not server.is_local)
    problems: list[str] = []
    try:
        client.open()
        deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
        for request in _probe_requests(server, model):
            answer, problem = _fetch_json(client, server, request, deadline)
            if problem is not None:
                problems.append(problem)
            window = request.parse(answer, model)
            if window is not None:
                return replace(server, context_window=window), None
    except ConnectionError as error:
        problems.append(str(error))
    finally:
        client.close()
    if not problems:
        return server, None
    warning = f"{server.kind} at {server.url}: context window of {model} unknown: {problems[0]}"
    return server, warning


def _probe_requests(server: Backend, model: str) -> Iterator[ProbeRequest]:
    """The requests to try in turn until the window is known."""
    root = re.sub(r"/v\d+$", "", server.url)
    if server.kind == "ollama":
        yield ProbeRequest(f"{root}/api/ps", None, _window_from_ollama_ps)
        yield ProbeRequest(f"{root}/api/show", {"model": model}, _window_from_ollama_show)
        return
    models = "/v1/models" if server.kind == "anthropic" else "/models"
    yield ProbeRequest(server.url + models, None, _window_from_model_list)
    yield ProbeRequest(f"{root}/api/v0/models", None, _window_from_model_list)  # LM Studio


def _window_from_ollama_ps(answer: Any, model: str) -> int | None:
    """The size that a loaded model was loaded with."""
    for entry in _dict_items(answer, "models"):
        if model in (entry.get("name"), entry.get("model")) or entry.get("name") == (
            f"{model}:latest"
        ):
            return _positive_int(entry.get("context_length"))
    return None


def _window_from_ollama_show(answer: Any, model: str) -> int | None:
    """`num_ctx` if it is set, else the maximum of the model."""
    if not isinstance(answer, dict):
        return None
    num_ctx = re.search(r"^num_ctx\s+(\d+)", str(answer.get("parameters") or ""), re.M)
    if num_ctx is not None:
        return _positive_int(int(num_ctx[1]))
    info = answer.get("model_info")
    if not isinstance(info, dict):
        return None
    lengths = (value for name, value in info.items() if name.endswith(".context_length"))
    return next(filter(None, map(_positive_int, lengths)), None)


def _window_from_model_list(answer: Any, model: str) -> int | None:
    """A list of models; the window has several names, and may be in `meta`."""
    for entry in _dict_items(answer, "data"):
        if entry.get("id") == model:
            meta = entry.get("meta")
            values = {**(meta if isinstance(meta, dict) else {}), **entry}
            sizes = (_positive_int(values.get(key)) for key in CONTEXT_WINDOW_KEYS)
            return next(filter(None, sizes), None)
    return None


def _dict_items(answer: Any, name: str) -> list[dict[str, Any]]:
    items = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, dict)]


def _positive_int(value: Any) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < 1 << 53 else None


# -- one request -----------------------------------------------------------------------------------


def _fetch_json(
    client: HttpClient, server: Backend, request: ProbeRequest, deadline: float
) -> tuple[Any, str | None]:
    """The decoded response and None, or None and what went wrong."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if server.key != PLACEHOLDER_KEY:
        headers |= {"Authorization": f"Bearer {server.key}", "X-Api-Key": server.key}
    try:
        response = client.request(
            "GET" if request.body is None else "POST",
            request.url,
            deadline=deadline,
            max_bytes=MAX_RESPONSE_BYTES,
            headers=headers,
            body=None if request.body is None else msgspec.json.encode(request.body),
        )
    except (TimeoutError, ConnectionError) as error:
        return None, str(error)
    if response.status == 404:  # not an API of this server
        return None, None
    return _decode_response(response)


def _decode_response(response: HttpResponse) -> tuple[Any, str | None]:
    if not is_success(response.status):
        return None, status_text(response.status)
    if not response.is_complete:
        return None, "the response is too large"
    try:
        return msgspec.json.decode(response.body), None
    except RecursionError:
        return None, "the response is nested too deeply"
    except (msgspec.MsgspecError, ValueError) as error:
        return None, str(error)
