"""The model server that a run is led to: checked before anything starts, and asked how much its model's window holds.

What is wrong with the asking raises StenoError. A server that does not answer, or does not tell, is a note and no more: the
run finds out by itself. It writes nothing, and waits for PATIENCE in all.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..agents import Agent, Backend
from ..agents.backend import BACKEND_KEY_VARIABLE, BACKEND_KINDS, PLACEHOLDER_KEY, parse_backend
from ..errors import StenoError

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

PROBE_TIMEOUT_SECONDS = (
    3.0  # seconds for all questions together: a server in one's own house answers at once
)
MAX_RESPONSE_BYTES = 8 << 20  # bytes of an answer: a list of all models of a large service
# A model's window, as servers call it in their lists: what is loaded now comes before what could be.
CONTEXT_WINDOW_KEYS = (
    "loaded_context_length",
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "max_input_tokens",
)


def choose_backend(
    given: str | None,
    where: str,
    agent: Agent,
    model: str | None,
    environ: Mapping[str, str],
    spell: Callable[[str], str],
) -> Backend | None:
    """The server that is meant; None: the agent's own. `where` says what set it. StenoError if the agent cannot use it."""
    if given is None:
        return None
    kind = given.partition(":")[0]
    if kind not in agent.launch.backends:
        able = ", ".join(
            known if known == "ollama" else f"{known}:URL"
            for known in BACKEND_KINDS
            if known in agent.launch.backends
        )
        told = f"it can be led to {able}" if able else "it speaks only to its maker's own servers"
        raise StenoError(
            f"{where} {given}: {agent.name} does not speak to a server of that kind; {told}"
        )
    if model is None:
        raise StenoError(f"{where} {given}: which of the server's models? {spell('model')} NAME")
    return parse_backend(
        given, model, environ.get("OLLAMA_HOST"), environ.get(BACKEND_KEY_VARIABLE)
    )


def probe_backend(server: Backend, model: str) -> tuple[Backend, str | None]:
    """The same with what the server tells of the model, and a note where it does not answer."""
    until = time.monotonic() + PROBE_TIMEOUT_SECONDS
    problems: list[str] = []
    for path, body, find in _probe_requests(server, model):
        answer = _fetch_json(server, path, body, until, problems)
        found = find(answer, model) if answer is not None else None
        if found is not None:
            return replace(server, context_window=found), None
    if problems:
        return (
            server,
            f"{server.kind} at {server.url} does not tell how much {model} holds: {problems[0]}",
        )
    return server, None


WindowParser = Callable[[Any, str], int | None]


def _probe_requests(
    server: Backend, model: str
) -> Iterator[tuple[str, dict[str, str] | None, WindowParser]]:
    """What is asked, one after the other until it is known: where, with what, and how the answer is read."""
    root = re.sub(r"/v\d+$", "", server.url)
    if server.kind == "ollama":
        yield f"{root}/api/ps", None, _window_from_ollama_ps
        yield f"{root}/api/show", {"model": model}, _window_from_ollama_show
        return
    yield (
        f"{server.url}/v1/models" if server.kind == "anthropic" else f"{server.url}/models",
        None,
        _window_from_model_list,
    )
    yield f"{root}/api/v0/models", None, _window_from_model_list  # LM Studio tells it there


def _window_from_ollama_ps(answer: Any, model: str) -> int | None:
    """Ollama: a model that is in memory says what it was loaded with."""
    for one in _dict_items(answer, "models"):
        if model in (one.get("name"), one.get("model")) or f"{model}:latest" == one.get("name"):
            return _positive_int(one.get("context_length"))
    return None


def _window_from_ollama_show(answer: Any, model: str) -> int | None:
    """Ollama: num_ctx is what it will be loaded with, where that is set; else what the model was made for."""
    if not isinstance(answer, dict):
        return None
    set_ = re.search(r"^num_ctx\s+(\d+)", str(answer.get("parameters") or ""), re.M)
    if set_ is not None:
        return _positive_int(int(set_[1]))
    info = answer.get("model_info")
    lengths = (
        value
        for name, value in (info if isinstance(info, dict) else {}).items()
        if name.endswith(".context_length")
    )
    return next(filter(None, map(_positive_int, lengths)), None)


def _window_from_model_list(answer: Any, model: str) -> int | None:
    """A list of models, in which each may tell its window under one of several names, or in its `meta`."""
    for one in _dict_items(answer, "data"):
        if one.get("id") == model:
            meta = one.get("meta")
            every = {**(meta if isinstance(meta, dict) else {}), **one}
            return next(
                filter(
                    None,
                    (
                        _positive_int(every.get(name))
                        for name in (*CONTEXT_WINDOW_KEYS, "n_ctx", "n_ctx_train")
                    ),
                ),
                None,
            )
    return None


def _dict_items(answer: Any, name: str) -> list[dict[str, Any]]:
    found = answer.get(name) if isinstance(answer, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _positive_int(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53
        else None
    )


# -- one question ----------------------------------------------------------------------------------------------------


def _fetch_json(
    server: Backend, url: str, body: dict[str, str] | None, until: float, problems: list[str]
) -> Any:
    """What the server answers; None, and a problem, where it does not."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    left = until - time.monotonic()
    if left <= 0:
        problems.append("it is too slow")
        return None
    heads = {"accept": "application/json", "content-type": "application/json"}
    if server.key != PLACEHOLDER_KEY:
        heads |= {"authorization": f"Bearer {server.key}", "x-api-key": server.key}
    data = None if body is None else msgspec.json.encode(body)
    try:
        with _build_opener(server.is_local).open(
            Request(url, data, heads),  # noqa: S310  # the scheme is checked: http or https
            timeout=left,
        ) as response:  # checked: http(s)
            return msgspec.json.decode(_read_response(response, until))
    except HTTPError as problem:
        if problem.code != 404:  # what it does not have, it does not tell
            problems.append(f"HTTP {problem.code}")
        problem.close()
    except TimeoutError:
        problems.append("it is too slow")
    except RecursionError:
        problems.append("its answer is nested too deep")
    except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        problems.append(str(getattr(reason, "strerror", None) or reason))
    return None


def _build_opener(local: bool) -> "OpenerDirector":
    """How the server is reached: by nobody in between where it stands in one's own house, and never where it sends us to.

    A key that is meant for one server is not handed to the next.
    """
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *told: Any) -> None:
            """Nowhere."""

    return build_opener(Stay, *([ProxyHandler({})] if local else []))


def _read_response(response: Any, until: float) -> bytes:
    """The whole answer, as long as it comes in time."""
    found = b""
    while chunk := response.read1(1 << 16):
        found += chunk
        if len(found) > MAX_RESPONSE_BYTES or time.monotonic() > until:
            raise ValueError("its answer is too long")
    return found
