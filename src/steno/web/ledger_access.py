"""The ledger for the threads of the page: read-only connections, and the work beside them.

Pages only read. One background thread imports what agents wrote since, updates the index of the
search and looks up which names the filters offer, so that no page waits for it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue

from ..errors import LedgerError, StenoError
from ..ledger.queries.filters import filter_choices
from ..ledger.queries.search import update_index
from ..ledger.store import Store, open_ledger

MAX_CONNECTIONS = 4
CONNECTION_TIMEOUT_SECONDS = 10.0
REFRESH_SECONDS = 60.0

Refresh = Callable[[Store], None]


class LedgerAccess:
    """Lends connections to threads, and refreshes the ledger in the background."""

    def __init__(self, location: str | None, refresh: Refresh | None = None) -> None:
        self.location = location
        self.choices: dict[str, list[str]] = {}
        self._refresh = refresh
        self._idle: LifoQueue[Store | None] = LifoQueue()
        for _ in range(MAX_CONNECTIONS):
            self._idle.put(None)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_fresh, name="refresh", daemon=True)

    @contextmanager
    def reader(self) -> Iterator[Store]:
        """A read-only connection. LedgerError if there is none for too long."""
        try:
            store = self._idle.get(timeout=CONNECTION_TIMEOUT_SECONDS)
        except Empty:
            raise LedgerError("the ledger is busy; try again") from None
        try:
            if store is None:
                store = open_ledger(self.location, read_only=True)
            yield store
        except LedgerError:
            if store is not None:
                store.close()
            store = None  # a lost server may be back at the next request
            raise
        finally:
            self._idle.put(store)

    @contextmanager
    def writer(self) -> Iterator[Store]:
        """A connection for one change: a note, or the index of the search."""
        store = open_ledger(self.location)
        try:
            yield store
        finally:
            store.close()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the background work without waiting for it, and close idle connections."""
        self._stopping.set()
        with suppress(Empty):
            while True:
                store = self._idle.get_nowait()
                if store is not None:
                    store.close()

    def _keep_fresh(self) -> None:
        while not self._stopping.is_set():
            with suppress(StenoError):  # shown by the next page that needs the ledger
                self.refresh()
            self._stopping.wait(REFRESH_SECONDS)

    def refresh(self) -> None:
        """Import, update the index of the search, look up the names for filters."""
        if self._refresh is not None:
            with self.writer() as store, suppress(StenoError):
                self._refresh(store)
                update_index(store)
        with self.reader() as store:
            self.choices = filter_choices(store)
