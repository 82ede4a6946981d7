"""A model server that replaces the vendor's: its protocol, URL and key. Pure.

The `start` module of each agent translates it to the agent's own settings. Its key is passed in the
agent's environment only, and is never the vendor's key.
"""

from msgspec import Struct

BACKEND_KINDS = ("ollama", "openai", "anthropic")
BACKEND_KEY_VARIABLE = "STENO_BACKEND_KEY"
PLACEHOLDER_KEY = "none"  # for servers without a key: the agents do not start without one
OLLAMA_DEFAULT_PORT = "11434"
LOCAL_DOMAIN_SUFFIXES = (".localhost", ".local", ".lan", ".internal", ".home.arpa", ".localdomain")


class Backend(Struct, frozen=True, kw_only=True):
    """A model server.

    `url` is its root for ollama and anthropic, and includes the path (usually /v1) for openai.
    `is_local`: its use is free of charge. `context_window` is the model's, if reported.
    """

    kind: str
    url: str
    key: str = PLACEHOLDER_KEY
    is_local: bool = True
    context_window: int | None = None

    @property
    def openai_url(self) -> str:
        """The base URL of its OpenAI-compatible API."""
        return f"{self.url}/v1" if self.kind == "ollama" else self.url


def parse_backend(
    value: str, model: str, host: str | None = None, key: str | None = None
) -> Backend:
    """Parse `ollama`, `ollama:URL`, `openai:URL` or `anthropic:URL`; `host` is OLLAMA_HOST."""
    from urllib.parse import urlsplit  # slow to import, not needed to read a recording

    kind, _, address = value.partition(":")
    url = (address or _ollama_url(host)).rstrip("/")
    if kind != "openai":
        url = url.removesuffix("/v1")
    elif not urlsplit(url).path:
        url += "/v1"
    # Ollama runs models with this suffix on its vendor's servers.
    is_cloud_model = kind == "ollama" and model.endswith(("-cloud", ":cloud"))
    return Backend(
        kind=kind,
        url=url,
        key=key or PLACEHOLDER_KEY,
        is_local=is_local_url(url) and not is_cloud_model,
    )


def _ollama_url(host: str | None) -> str:
    """Parse OLLAMA_HOST: a host, a port, or both, with or without a scheme."""
    scheme, _, rest = (host or "").rpartition("://")
    name, _, port = rest.partition("/")[0].rpartition(":")
    if not name and not port.isdigit():  # a host only
        name = port
        port = ""
    if name in ("", "0.0.0.0", "[::]"):  # noqa: S104  # compared with, not bound to
        name = "127.0.0.1"
    return f"{scheme or 'http'}://{name}:{port or OLLAMA_DEFAULT_PORT}"


def is_local_url(url: str) -> bool:
    """Whether a server is on this machine or in a private network."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    name = (urlsplit(url).hostname or "").lower()
    try:
        return not ip_address(name).is_global
    except ValueError:
        return "." not in name or name.endswith(LOCAL_DOMAIN_SUFFIXES)
