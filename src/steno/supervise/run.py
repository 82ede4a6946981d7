"""One run, live: its process, its tape, its running report, its clocks and its budget (R1 to R4, R9).

Each tick goes to the tape first, then to the reader, the fold and the sinks. Live is replay: what the report says is what
the tape says. It never decides what comes after the run; its task does.
"""

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from .. import event as ev
from ..agents import REPLAY, Agent, Ask
from ..agents.asking import shaped
from ..environment import surround
from ..files.index import Notice
from ..fold import Fold
from ..prices import price, ready
from ..process import Child, Command, Loop, Timer
from ..reading import Reading
from ..redact import clipped
from ..report import RecordError, Report
from ..source import kept_lines
from ..tape import Recorder
from ..tick import Header, Served, Tick
from .shaping import Shaping, told
from .spend import Spend, free
from .values import Budget, Clocks, Setup
from .version import version_of
from .witness import Witness

PROMPT = 2000  # characters of a prompt that are kept
KEY_TRIES = 2  # a key may be renewed after it was rejected once; an agent that goes on trying it (Claude: for 3 minutes) is ended
Sink = Callable[["Run", list[ev.Event]], None]
Ended = Callable[["Run"], str]  # told of the end; says what was decided, for the tape


class Run:
    """A run that goes on. `report` is None until it is over."""

    def __init__(
        self,
        loop: Loop,
        agent: Agent,
        ask: Ask,
        setup: Setup,
        run_id: str,
        tape: Path | None,
        now: float,
        ended: Ended,
        witness: Witness,
    ) -> None:
        self.id, self.agent, self.ask, self.setup = run_id, agent, ask, setup
        self.tape, self.began = tape, now
        self.task: tuple[str, int] | None = None  # of which task it is, and which attempt
        self.report: Report | None = None
        self.sinks: list[Sink] = []
        self.raw: Callable[[bytes], None] | None = None  # gets the agent's own bytes, as they come
        self.warnings: list[str] = []  # troubles of our own
        self.warn: Callable[[str], None] = lambda text: None  # told of those that cost the record of the run
        self.wrong: tuple[str, ...] = ()  # what is wrong with its answer, by the schema that was asked for
        local = ask.backend is not None and ask.backend.local
        self.spend = Spend(free if local else price if setup.priced or setup.budget.cost is not None else None)
        self.child: Child | None = None
        self._loop, self._ended, self._witness = loop, ended, witness
        self._gone: float | None = None  # when the agent exited, once it has
        self._budget = setup.budget
        self._warned = False
        self._unpriced = False  # a request had no known price
        self._stopping = False  # we asked it to end
        self._closed = False  # it has closed its turn with a result, and begun no other since
        self._timers: list[Timer] = [Timer(0.0, None), Timer(0.0, None)]  # the next look at the clocks, and the end of all time
        self._command = Command((), None)
        self._recorder: Recorder | None = None
        self._shaping = Shaping(ask.json_schema)
        self._folders: list[str] = []  # where the agent keeps files of its sessions
        self.reading = Reading(agent, "stream")
        self.reading.fold.facts.advise = setup.advise

    @property
    def fold(self) -> Fold:
        """What the run has shown so far."""
        return self.reading.fold

    @property
    def asked_session(self) -> str | None:
        """The session that it was asked to work in, where the agent takes one from us."""
        return self.ask.resume or (None if "session_id" in self.agent.cannot else self.ask.session_id)

    def prepare(self, budget: Budget) -> None:
        """Get ready, and begin its record. `budget` is what is left for it. RecordError: it cannot be recorded."""
        self._budget = budget
        inherited = os.environ if self.setup.environ is None else self.setup.environ
        program = self.setup.program or self.agent.name
        version = self.setup.version or version_of(program, inherited.get("PATH"), self.agent.package)
        begun = self.agent.start(shaped(self.agent, self.ask, version), program, version)
        argv = self._shaping.words(begun)
        cwd = self.setup.cwd or os.getcwd()  # noqa: PTH109
        header = Header(
            agent=self.agent.name,
            run_id=self.id,
            argv=list(argv),
            cwd=cwd,
            started_at=self.began,
            backend=_served(self.ask),
            played=self.setup.agent == REPLAY,
        )
        if self.task is not None:
            header.task, header.attempt = self.task
            header.prompt = clipped(self.ask.prompt, PROMPT)
        self._record(header)
        self.reading.begin(header)
        keys = self.setup.keys and self.ask.backend is None  # those of the agent's maker are nobody else's business
        env = surround(inherited, self.agent.surroundings, keys=keys, more={**dict(begun.env), **self.setup.env})
        self._folders = self.agent.folders(env, env.get("HOME") or str(Path.home()))
        self._command = Command(argv, cwd, env, begun.stdin, begun.stdout, self.ask.steer)

    def start(self) -> None:
        """Start it, when it is ready."""
        setup = self.setup
        self._witness.tell(self._noticed)
        self.child = self._loop.start(self._command, self._on_tick, run_id=self.id, grace=setup.grace, leave=setup.leave)
        if setup.clocks.timeout is not None:
            self._timers[1] = self._loop.after(setup.clocks.timeout, self._time_out)
        if self.spend.price is price:
            self._loop.soon(ready)  # the table is loaded while the agent starts
        self._confess()
        self._look()

    def _record(self, header: Header) -> None:
        if self.tape is not None:
            try:
                self._recorder = Recorder(self.tape, header)
            except OSError as problem:
                self._shaping.close()
                raise RecordError(f"{self.tape}: the tape cannot be made: {problem.strerror or problem}") from None

    # -- ticks -------------------------------------------------------------------------------------------------------

    def _on_tick(self, tick: Tick) -> None:
        if tick.code == "exit":
            self._gone = tick.after
            self._witness.after(lambda: self._exit(tick))
        else:
            self._take(tick)

    def _exit(self, tick: Tick) -> None:
        """The agent is gone, and what it did to files is known: what else is to be told of it goes before its exit."""
        for orphan in self.child.orphans if self.child is not None else ():
            signal = "-" if orphan.signal is None else str(orphan.signal)
            self._take(Tick(tick.after, "left", f"{orphan.pid} {signal} {orphan.command}".encode("utf-8", "replace")))
        for line in kept_lines(self.reading.pattern(self.asked_session), self._folders, _written(self.began)):
            self._take(Tick(tick.after, "kept", line))
        self._confess()
        self._take(tick)
        self._finish(tick.after)

    def _noticed(self, notices: list[Notice]) -> None:
        """Files were seen to change."""
        for notice in notices if self.report is None else ():
            code = "git" if notice.source == "git" else "file"
            self._take(Tick(self._after(), code, os.fsencode(f"{notice.change} {notice.name}")))

    def _confess(self) -> None:
        """Say what of the files could not be seen."""
        while self._witness.troubles:
            self.note(self._witness.troubles.pop(0))

    def _after(self) -> float | None:
        """How long it has been running; at most until the agent was gone."""
        if self._gone is not None or self.child is None:
            return self._gone
        return self._loop.clock() - self.child.started

    def _take(self, tick: Tick) -> None:
        if self._recorder is not None:
            try:
                self._recorder.write(tick)
            except OSError as problem:
                self._unrecorded(problem)
        if tick.code == "out" and self.raw is not None:
            self.raw(tick.data)
        self._hand_on(self.reading.tick(tick))

    def let_go(self) -> None:
        """Nothing more is recorded, whether it is over or not."""
        if self._recorder is not None:
            self._recorder.drop()
            self._recorder = None

    def _unrecorded(self, problem: OSError) -> None:
        """The tape ends here; the run goes on: what it costs is being spent."""
        self.let_go()
        self.trouble(f"the tape could not be written any further: {problem.strerror or problem}")

    def trouble(self, text: str) -> None:
        """Something of the record is lost: told at once, and by the report."""
        (self.warnings if self.report is None else self.report.warnings).append(text)
        self.warn(text)

    def _hand_on(self, events: list[ev.Event]) -> None:
        self.fold.add(events)
        for event in events:
            kind = type(event)
            if kind is ev.Usage:
                self._closed = False
                self.spend.add(event)  # type: ignore[arg-type]  # told by the line above
            elif kind is ev.Result:
                self._rest()
            elif kind is ev.Started:
                self._closed = False  # the end of work in the background wakes the model once more
            elif kind is ev.Retry:
                self._check_key(event)  # type: ignore[arg-type]
        for sink in list(self.sinks):
            try:
                sink(self, events)
            except Exception as problem:  # a sink that fails is dropped; the run goes on
                self.sinks.remove(sink)
                self.warnings.append(f"something that was listening failed and is left out: {type(problem).__name__}: {problem}")
        if events and (self._budget.cost is not None or self._budget.tokens is not None):
            self._check_budget()

    def _rest(self) -> None:
        """A turn is closed: whoever keeps its stdin open for messages would wait for the next one for ever."""
        self._closed = True
        if self.child is not None:
            self.child.hang_up()
        self._look()

    def _check_key(self, told: ev.Retry) -> None:
        """R7: a key that was rejected is not tried again and again."""
        if told.status == 401 and (told.attempt or 0) >= KEY_TRIES:
            self.stop("auth")

    def note(self, text: str) -> None:
        """Write a decision of ours on the tape, and tell the sinks."""
        self._take(Tick(self._after(), "note", text.encode("utf-8", "replace")))

    def _finish(self, after: float | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self.reading.tick(Tick(None, "end"))  # the tape is closed below, whatever is decided
        self._hand_on(self.reading.end())
        self._shaping.close()
        self.report = self._judged(after)
        decided = self._ended(self)
        if decided:
            self._take(Tick(after, "note", decided.encode("utf-8", "replace")))
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OSError as problem:
                self._unrecorded(problem)

    def _judged(self, after: float | None) -> Report:
        """The report; an answer that a schema was asked for is held against it first, and what is found is on the tape."""
        source = str(self.tape) if self.tape is not None else None
        report = self.reading.report(source, price)
        checked = self._shaping.check(report)
        if checked is None:
            return report
        self.wrong = checked.wrong
        self._take(Tick(after, "checked", told(checked)))
        return self.reading.report(source, price)

    # -- ends --------------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Ask it to end: interrupt, terminate, kill."""
        if self.child is not None and self.report is None:
            self._stopping = True
            self.child.stop(why)

    def kill(self, why: str = "killed") -> None:
        """End it at once."""
        if self.child is not None and self.report is None:
            self._stopping = True
            self.child.kill(why)

    def send(self, text: str) -> bool:
        """Say something to an agent that takes messages while it runs; False: it does not, or is over."""
        if self.child is None or self.report is not None or not self.ask.steer:
            return False
        data = self.agent.message(text)
        if not self.child.send(data):
            return False
        self._take(Tick(self._loop.clock() - self.child.started, "in", data))
        return True

    # -- clocks ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See whether a clock has run out; if not, look again when one could have.

        What the run does changes only when it is heard of, and no clock is shorter than the shortest.
        """
        child, clocks = self.child, self.setup.clocks
        self._timers[0].cancel()
        if child is None or child.exit_code is not None or self._stopping:
            return
        now = self._loop.clock()
        limit, why, told = self._patience(clocks)
        if limit is not None and child.heard + limit <= now:
            self.note(f"{why}: no output for {now - child.heard:.0f} s")
            self.stop(f"{why}: {told.format(limit)}" if told else why)
            return
        all_ = (clocks.first_output, clocks.silence, clocks.tool, clocks.after_result, clocks.background)
        times = [now + clock for clock in all_ if clock is not None] + ([] if limit is None else [child.heard + limit])
        if times:
            self._timers[0] = self._loop.at(min(times), self._look)

    def _time_out(self) -> None:
        self.stop(f"timeout: not done within {self.setup.clocks.timeout:g} s (--timeout)")

    def _patience(self, clocks: Clocks) -> tuple[float | None, str, str]:
        """How long it may be silent now, what it is called when it was for longer, and what is told of it then."""
        if self.child is not None and not self.child.spoke:
            return clocks.first_output, "stalled", "no output within {:g} s of its start (--first-output)"
        if self._closed:
            return (clocks.background if self._busy() else clocks.after_result), "after_result", ""
        if self.fold.open or self._busy():
            return clocks.tool, "stalled", "no output for {:g} s while a tool ran (--tool-silence)"
        return clocks.silence, "stalled", "no output for {:g} s (--silence)"

    def _busy(self) -> bool:
        return any(task.status == "running" for task in self.fold.background.values())

    # -- budget ------------------------------------------------------------------------------------------------------

    def _check_budget(self) -> None:
        budget = self._budget
        if budget.cost is not None and self.spend.nano is None and "max_cost" in self.agent.cannot and not self._unpriced:
            self._unpriced = True
            self.warnings.append("budget: a request has no known price: what it may cost was not held while it ran")
            self.note("budget: a request has no known price: what it may cost is not held while it runs")
        if self._stopping or self._closed:
            return
        parts = [
            None if budget.tokens is None else self.spend.tokens / max(budget.tokens, 1),
            None if budget.cost is None or self.spend.nano is None else self.spend.nano / max(budget.cost * 1e9, 1),
        ]
        used = max((part for part in parts if part is not None), default=0.0)
        if used >= 1:
            self.stop("max_budget")
            self.note("max_budget: what may be spent is spent")
        elif used >= budget.warn_at and not self._warned:
            self._warned = True
            self.note(f"budget: {used:.0%} of what may be spent is spent")


def _written(time: float) -> str:
    """A time as the agents write it in their files, to the millisecond: a run may follow another within the same second."""
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def _served(ask: Ask) -> Served | None:
    """What a tape says of the model server: all that its report needs, and no key."""
    given = ask.backend
    return None if given is None else Served(kind=given.kind, url=given.url, local=given.local, window=given.window)
