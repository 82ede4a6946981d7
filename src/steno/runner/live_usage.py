"""Tokens, cost and context of an active run, with their alerts.

They come from the stream, or from the agent's session file if the stream has no usage before its
end. What the session file says is not part of the run's report until the run has ended.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .. import event as ev
from ..analysis.accumulator import Accumulator
from ..analysis.list_price import PriceLookup
from ..analysis.live_state import ContextAlerts, SpendTracker
from ..analysis.usage import nano_to_usd
from ..codec.decode import LineSplitter
from ..recording.open import is_line_since
from ..recording.parse import RunParser
from .setup import RunBudget

POLL_SECONDS = 0.1  # between reads of the session file
# Between searches for it, doubled each time: its folder may contain thousands of files.
MIN_SEARCH_SECONDS = 0.2
MAX_SEARCH_SECONDS = 5.0


class LiveUsage:
    """The requests of an active run so far. `accumulator` contains them.

    `is_in_session_file`: only the agent's session file has usage while the agent runs; see
    `follow` and `poll`.
    """

    def __init__(self, parser: RunParser, price: PriceLookup | None, levels: Iterable[float]):
        self._stream = parser
        self._session_file: RunParser | None = None
        self._follower: TranscriptFollower | None = None
        self._next_search = 0.0
        self._search_delay = MIN_SEARCH_SECONDS
        agent = parser.agent
        self.is_in_session_file = (
            agent.transcripts.pattern is not None and not agent.capabilities.context
        )
        if self.is_in_session_file:
            self._session_file = RunParser(agent, "stream")
        self.accumulator: Accumulator = (self._session_file or parser).accumulator
        self.spend = SpendTracker(self.accumulator, price)
        self._context_alerts = ContextAlerts(self.accumulator, levels)

    def follow(self, folders: list[str], since: str) -> None:
        """Follow the session file, from a time on."""
        self._follower = TranscriptFollower(folders, since)
        self.accumulator.context_window = self._stream.accumulator.context_window

    @property
    def is_missing(self) -> bool:
        """Whether the session file is needed and was not found, or has no usage."""
        return self._follower is not None and not self.spend.tokens

    def add(self, events: list[ev.Event]) -> list[ev.Alert]:
        """Accumulate events of the stream."""
        if self._session_file is None:
            return self._accumulate(events)
        self._stream.accumulator.add(events)
        return []

    def poll(self, now: float, session: str | None) -> list[ev.Alert]:
        """Read what is new in the session file; `session`: its id, if the stream has none."""
        if self._follower is None or self._session_file is None:
            return []
        pattern = self._stream.transcript_pattern(session)
        if pattern is not None and now >= self._next_search and not self._follower.has_new_lines:
            self._next_search = now + self._search_delay
            self._search_delay = min(2 * self._search_delay, MAX_SEARCH_SECONDS)
            self._follower.find(pattern)
        return [
            alert
            for line in self._follower.lines()
            for alert in self._accumulate(self._session_file.parse_line(line))
        ]

    def close(self) -> None:
        """Stop following."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _accumulate(self, events: list[ev.Event]) -> list[ev.Alert]:
        alerts: list[ev.Alert] = []
        for event in events:
            self.accumulator.add((event,))
            if type(event) is ev.Usage:
                self.spend.add(event)
            alerts += self._context_alerts.check(event)
        return alerts


class BudgetMeter:
    """The use of a task's budget. `remaining` is what earlier attempts have left of it."""

    def __init__(self, budget: RunBudget, remaining: RunBudget, spend: SpendTracker) -> None:
        self._budget = budget
        self._remaining = remaining
        self._spend = spend
        # What earlier attempts have reached was reported then.
        self._raised = {kind for kind, used, limit in self._used() if self._is_reached(used, limit)}

    @property
    def is_exhausted(self) -> bool:
        return any(used >= limit for _, used, limit in self._used())

    def check(self) -> list[ev.Alert]:
        """The alerts since the last call: each budget once."""
        alerts = [
            ev.Alert(0, None, None, None, kind, self._budget.warn_at, used, limit)
            for kind, used, limit in self._used()
            if kind not in self._raised and self._is_reached(used, limit)
        ]
        self._raised.update(alert.kind for alert in alerts)
        return alerts

    def _is_reached(self, used: float, limit: float) -> bool:
        return used >= limit * self._budget.warn_at

    def _used(self) -> list[tuple[str, float, float]]:
        """Kind, amount used and limit of each budget whose use is known."""
        amounts: list[tuple[str, float, float]] = []
        tokens = self._budget.tokens
        if tokens is not None:
            before = tokens - (self._remaining.tokens or 0)
            amounts.append(("tokens", before + self._spend.tokens, tokens))
        cost = self._budget.cost
        spent = nano_to_usd(self._spend.cost_nano)
        if cost is not None and spent is not None:
            before_cost = cost - (self._remaining.cost or 0.0)
            amounts.append(("cost", before_cost + spent, cost))
        return amounts


# -- session files ---------------------------------------------------------------------------------

READ_CHUNK_BYTES = 1 << 18
MAX_POLL_BYTES = 1 << 22  # per file and call: a resumed session can be long


class TranscriptFollower:
    """New lines of the files that match a glob below some folders.

    As in `read_transcripts`, lines before `since` are left out except the first one of each file.
    A file that cannot be read has no lines. `has_new_lines`: one of them has grown since then.
    """

    def __init__(self, folders: Iterable[str], since: str) -> None:
        self._folders = list(folders)
        self._since = since
        self._files: dict[Path, GrowingFile] = {}

    @property
    def has_new_lines(self) -> bool:
        return any(file.has_new_lines for file in self._files.values())

    def find(self, pattern: str) -> None:
        """Open the files that match and are not open yet."""
        for folder in self._folders:
            with suppress(OSError):
                for path in sorted(Path(folder).glob(pattern)):
                    if path not in self._files and path.is_file():
                        self._files[path] = GrowingFile(path, self._since)

    def lines(self) -> Iterator[bytes]:
        """The complete lines since the last call, without their newlines."""
        for file in self._files.values():
            with suppress(OSError):
                yield from file.lines()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class GrowingFile:
    """One file. An incomplete line is kept until the rest arrives; a truncated file is reread."""

    def __init__(self, path: Path, since: str) -> None:
        self._file = path.open("rb", buffering=0)
        self._since = since
        self._splitter = LineSplitter()
        self._is_at_start = True
        self.has_new_lines = False

    def lines(self) -> Iterator[bytes]:
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._splitter = LineSplitter()
            self._is_at_start = True
        for _ in range(MAX_POLL_BYTES // READ_CHUNK_BYTES):
            data = self._file.read(READ_CHUNK_BYTES)
            if not data:
                return
            for line in self._splitter.feed(data):
                is_new = is_line_since(line, self._since)
                self.has_new_lines |= is_new
                if is_new or self._is_at_start:
                    yield line
                self._is_at_start = False

    def close(self) -> None:
        self._file.close()
