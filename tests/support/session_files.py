"""What the files of all agents share: names, times, ids, and the recording of steno."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct

from steno.recording.format import Header, Record, Recorder
from tests.support.session_model import Case, Kinds, duration_ms, history, sessions, start_times

START_MS = 1_793_610_000_000  # 2026-11-02 09:00 UTC
CWD = "/srv/project"
Json = dict[str, Any]
Key = tuple[int, int]  # run and place of a request


class File(Struct, frozen=True):
    """A file of a witness: its path in the folder, its lines and when it was last written."""

    path: str
    lines: tuple[bytes, ...]
    at_ms: int


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stable_uuid(*parts: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, " ".join(map(str, parts))))


class SessionFiles:
    """The files of a case; each agent has its own stdout and transcript."""

    agent = ""

    def __init__(self, case: Case, kinds: Kinds, copies_on_resume: bool = False) -> None:
        self.runs = case.runs
        self.kinds = kinds
        self.version = case.version.partition(" ")[0]
        self.sessions = sessions(case.runs, copies_on_resume)
        self.starts = start_times(case.runs, START_MS)
        # Of this case alone: equal cases have equal ids.
        self.seed = stable_uuid(repr(case.runs), case.agent, case.version)

    def stdout(self, run: int) -> tuple[bytes, ...]:
        raise NotImplementedError

    def transcript(self, session: int) -> File:
        raise NotImplementedError

    def agent_files(self, session: int) -> list[File]:
        return []

    def kept_before(self, run: int) -> Iterable[bytes]:
        """Lines that `steno run` keeps of the session's file before the run."""
        return ()

    def kept_after(self, run: int) -> Iterable[bytes]:
        """Lines that it keeps when the run has ended."""
        return ()

    def session_of(self, run: int) -> int:
        return next(n for n, session in enumerate(self.sessions) if run in session)

    def session_id(self, session: int) -> str:
        return stable_uuid(self.seed, "session", session)

    def end_ms(self, run: int) -> int:
        return self.starts[run] + duration_ms(self.runs[run])

    def times(self, run: int) -> list[int]:
        """When each request of a run ends."""
        at = self.starts[run]
        times = []
        for request in self.runs[run].requests:
            at += request.ms
            times.append(at)
        return times

    def is_call(self, run: int, place: int) -> bool:
        """Whether it calls a tool: all but the last request of each thread."""
        requests = self.runs[run].requests
        thread = (requests[place].kind, requests[place].agent)
        return any((other.kind, other.agent) == thread for other in requests[place + 1 :])

    def chain(self, run: int) -> set[Key]:
        """All requests of a session up to the end of a run, with those that a fork copied."""
        return {key for number in (*history(self.runs, run), run) for key in self.keys(number)}

    def keys(self, run: int, *kinds: str) -> set[Key]:
        requests = self.runs[run].requests
        return {
            (run, place)
            for place, request in enumerate(requests)
            if not kinds or request.kind in kinds
        }

    # -- witnesses -------------------------------------------------------------------------------

    def witnesses(self) -> list[str]:
        names = [f"out{number}" for number in range(len(self.runs)) if self.stdout(number)]
        names += [f"tape{number}" for number in range(len(self.runs))]
        for number in range(len(self.sessions)):
            names.append(f"file{number}")
            if self.agent_files(number):
                names.append(f"agents{number}")
        return names

    def files(self, witness: str) -> list[File]:
        kind = witness.rstrip("0123456789")
        number = int(witness[len(kind) :])
        if kind == "file":
            return [self.transcript(number)]
        if kind == "agents":
            return self.agent_files(number)
        if kind == "tape":
            name = f"recordings/{stable_uuid(self.seed, 'run', number)}.steno"
            return [File(name, (), self.end_ms(number))]
        at_ms = self.end_ms(number) + self.runs[number].file_delay_ms
        return [File(f"out/{number}.jsonl", self.stdout(number), at_ms)]

    def write_recording(self, run: int, path: Path) -> None:
        """As `steno run` writes it."""
        header = Header(
            agent=self.agent,
            run_id=path.stem,
            cwd=CWD,
            argv=[self.agent, "do it"],
            started_at=self.starts[run] / 1000,
            resumes=self.runs[run].origin is not None,
        )
        end = duration_ms(self.runs[run]) / 1000
        with Recorder(path, header) as recorder:
            for line in self.kept_before(run):
                recorder.write(Record(0.0, "kept", line))
            for line in self.stdout(run):
                recorder.write(Record(end, "out", line))
            for line in self.kept_after(run):
                recorder.write(Record(end, "kept", line))
            recorder.write(Record(end, "exit", number=0 if self.runs[run].end == "result" else 1))
