"""A TCP proxy to a PostgreSQL server that can be cut."""

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """A connection to PostgreSQL that can be cut: the server sees the end, the client nothing."""

    def __init__(self, place: str) -> None:
        self._server = f"{place}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: list[socket.socket] = []
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    self._silent.append(client)
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._pairs.append((client, server))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        if not self._is_cut:
            for end in (source, target):
                end.close()

    def cut(self) -> None:
        self._is_cut = True
        for client, server in self._pairs:
            _disconnect(server)
            self._silent.append(client)

    def heal(self) -> None:
        self._is_cut = False
        for client in self._silent:
            _disconnect(client)

    def close(self) -> None:
        self.heal()
        _disconnect(self._listener)
        for end in itertools.chain.from_iterable(self._pairs):
            _disconnect(end)


def _disconnect(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def proxied(place: str) -> Iterator[Proxy]:
    proxy = Proxy(place)
    try:
        yield proxy
    finally:
        proxy.close()
