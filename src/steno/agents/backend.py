"""A model server of one's own, as a value: how it is spoken to, and where. Pure: it asks no server anything.

Each agent is led to it by its own settings; `start` of each knows which. A key for it goes into the agent's environment
alone, under KEY, and is never that of the agent's maker.
"""

from msgspec import Struct

BACKEND_KINDS = ("ollama", "openai", "anthropic")
BACKEND_KEY_VARIABLE = (
    "STENO_BACKEND_KEY"  # the variable that holds the server's key, where it wants one
)
PLACEHOLDER_KEY = (
    "none"  # what is said to a server that wants no key: the agents do not start without one
)
OLLAMA_DEFAULT_URL = "http://127.0.0.1:11434"  # where Ollama listens unless it is told otherwise
LOCAL_DOMAIN_SUFFIXES = (".localhost", ".local", ".lan", ".internal", ".home.arpa", ".localdomain")


class Backend(Struct, frozen=True, kw_only=True):
    """A server. `url` is its root for Ollama and Anthropic's protocol, and ends in /v1 or the like for OpenAI's.

    `local`: what runs there costs nobody a fee. `window` is the model's, where the server tells it.
    """

    kind: str
    url: str
    key: str = PLACEHOLDER_KEY
    is_local: bool = True
    context_window: int | None = None

    @property
    def openai_url(self) -> str:
        """Where OpenAI's protocol is spoken."""
        return f"{self.url}/v1" if self.kind == "ollama" else self.url


def parse_backend(
    given: str, model: str, host: str | None = None, key: str | None = None
) -> Backend:
    """What `ollama`, `ollama:URL`, `openai:URL` or `anthropic:URL` means. `host` is OLLAMA_HOST, in that program's own words."""
    from urllib.parse import urlsplit  # the reading of a recording need not pay for it

    kind, _, place = given.partition(":")
    url = (place or _ollama_url(host)).rstrip("/")
    if kind == "openai":
        url += "" if urlsplit(url).path else "/v1"
    else:
        url = url.removesuffix("/v1")
    # Ollama hands some models on to its maker's machines, and marks them.
    elsewhere = kind == "ollama" and model.endswith(("-cloud", ":cloud"))
    return Backend(
        kind=kind, url=url, key=key or PLACEHOLDER_KEY, is_local=is_local_url(url) and not elsewhere
    )


def _ollama_url(host: str | None) -> str:
    """Where Ollama is, by its own variable: a host, a port, or both, with or without a scheme."""
    if not host:
        return OLLAMA_DEFAULT_URL
    scheme, _, rest = host.rpartition("://")
    name, _, port = rest.partition("/")[0].rpartition(":")
    if not name:
        name, port = (port, "") if not port.isdigit() else ("", port)
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name  # noqa: S104  # where it listens, not where it is
    return f"{scheme or 'http'}://{name}:{port or 11434}"


def is_local_url(url: str) -> bool:
    """Whether a server stands in one's own house: on this machine, or in a network that the world does not reach."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    name = (urlsplit(url).hostname or "").lower()
    try:
        return not ip_address(name).is_global
    except ValueError:
        return "." not in name or name.endswith(LOCAL_DOMAIN_SUFFIXES)
