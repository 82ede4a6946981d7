"""Lines of an agent's output to events: agent detection, damaged lines, line counts. Pure."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from msgspec import Raw

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..analysis.accumulator import Accumulator
from ..codec.decode import DECODE_ERRORS, decoder, iter_json_values
from ..report import LineCounts

MAX_MALFORMED_SHOWN = 20  # malformed lines kept for display; the rest is only counted
MAX_MALFORMED_HEAD_BYTES = 200  # shown of each malformed line
AGENT_DETECTION_LINES = 100  # lines checked for their agent before the default reader is kept
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_decode_array = decoder(list[Raw]).decode
# Terminal noise seen in front of a line: control sequences such as ESC[?25l.
_NOISE_PREFIX = rb"^(?:\xef\xbb\xbf|\x1b\[[0-9;?]*[A-Za-z]|[\s\x00])+"


def iter_json_objects(data: bytes) -> Iterator[bytes]:
    """The readable JSON objects on one line, each as clean JSON, without noise in front."""
    clean = _strip_noise(data)
    if clean[:1] == b"{":
        with suppress(ValueError, *DECODE_ERRORS):
            yield from (value for value in iter_json_values(clean) if value[:1] == b"{")


def _strip_noise(data: bytes) -> bytes:
    return re.sub(_NOISE_PREFIX, b"", data)


class AgentLineParser:
    """Parses the lines one agent printed. The agent is detected from them unless it is given."""

    def __init__(self, agent: Agent | None, input_format: str | None) -> None:
        self.agent = agent or agents.CLAUDE
        self.reader = self.agent.reader()
        self.accumulator = Accumulator(self.agent)
        self.counts = LineCounts()
        self.malformed_events: list[ev.Malformed] = []
        self.is_agent_known = agent is not None
        self.is_agent_given = agent is not None  # by the caller, or named on stderr
        self._accepts_arrays = input_format != "stream"

    @property
    def is_settled(self) -> bool:
        """Whether the first line was read and the reader will not change any more."""
        if self.counts.read <= self.counts.blank:
            return False
        return self.is_agent_known or self.counts.read >= AGENT_DETECTION_LINES

    def set_agent(self, agent: Agent | None) -> None:
        """Read the following lines as output of this agent; None: keep the current one."""
        if agent is None:
            return
        self.is_agent_known = True
        if agent is not self.agent:
            self.agent = self.accumulator.agent = agent
            self.reader = agent.reader()

    def parse(self, data: bytes, final: bool = False, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; `final`: the last one, without a newline."""
        counts = self.counts
        counts.read += 1
        if not self.is_agent_known and counts.read <= AGENT_DETECTION_LINES:
            self.set_agent(agents.detect_agent(_strip_noise(data)))
        try:
            return self.reader.read(data, counts.read, at)
        except DECODE_ERRORS:
            return self.parse_lenient(data, final, at)

    def parse_lenient(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """The events of a line the reader refused: blank, damaged, several values, wrong types."""
        clean = _strip_noise(data)
        if not clean:
            self.counts.blank += 1
            return []
        is_first = self.counts.read - self.counts.blank == 1
        if clean[:1] == b"[" and self._accepts_arrays and is_first:
            events = self._parse_array(clean)
            if events is not None:
                return events
        events = []
        has_objects = False
        try:
            for value in iter_json_values(clean):
                if value[:1] == b"{":
                    has_objects = True
                    events += self.reader.read_lenient(value, self.counts.read, at)
        except (ValueError, *DECODE_ERRORS):
            return [*events, self._malformed(data, final)]
        if not has_objects:
            self.counts.not_object += 1
        return events

    def _parse_array(self, data: bytes) -> list[ev.Event] | None:
        """An array of events as the whole input; each element counts as a line."""
        try:
            items = _decode_array(data)
        except DECODE_ERRORS:
            return None
        if not items or any(bytes(item)[:1] != b"{" for item in items):
            return None
        self.counts.read -= 1
        return [event for item in items for event in self.parse(bytes(item))]

    def _malformed(self, data: bytes, final: bool) -> ev.Malformed:
        opens_json = data.lstrip(BYTE_ORDER_MARK + b" \t\r\x00")[:1] in (b"{", b"[")
        torn = opens_json and (final or b"\n" in data[:-1])
        if torn:
            self.counts.torn = True
        else:
            self.counts.malformed += 1
        head = data[:MAX_MALFORMED_HEAD_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")
        event = ev.Malformed(self.counts.read, None, None, None, head, torn)
        if len(self.malformed_events) < MAX_MALFORMED_SHOWN:
            self.malformed_events.append(event)
        return event
