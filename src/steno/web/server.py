"""Runs the application with uvicorn until Ctrl-C."""

import socket

import uvicorn

from .app import Site, create_app

MAX_HEADER_BYTES = 32 << 10
SHUTDOWN_SECONDS = 1  # for requests in progress; streams end at once


class PageServer(uvicorn.Server):
    """Ends the streams when it shuts down: they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.live.close()
        await super().shutdown(sockets)


def serve(site: Site, listener: socket.socket) -> None:
    """Serve the page on a listening socket. Raises KeyboardInterrupt after Ctrl-C."""
    config = uvicorn.Config(
        create_app(site),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    PageServer(config, site).run(sockets=[listener])
