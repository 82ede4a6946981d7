"""A task: attempts, one after another, until it is done or nothing is gained by another (R5 to R11).

It turns with the loop and never waits by itself, so that one program can carry out any number of tasks. Each decision is
a note on the tape of the run that it follows, and is told to whoever listens.
"""

import os
import random
import time
import uuid
from collections.abc import Callable

import msgspec

from ..agents import CLAUDE, Ask, named
from ..process import Loop, Timer
from ..report import Report, StenoError, TaskReport
from .books import Books
from .decide import Next, Tried, decide
from .merge import merged
from .place import run_id, tape_path
from .played import played
from .run import Ended, Run, Sink
from .takeover import HANDOVER, absent, own_summary, taken_over
from .values import Budget, Setup
from .witness import Witness

GO_ON = "continue"
SUMMARISE = (
    "Summarise this session for a colleague who takes over and has seen none of it. Say what was accomplished, which decisions "
    "were made and why, the state of the code, known issues, and the next steps. Answer with the summary only."
)

Say = Callable[[str], None]


class Task:
    """A task that goes on. `report` is None until it is over."""

    def __init__(
        self,
        loop: Loop,
        setup: Setup,
        *,
        say: Say | None = None,  # told what was decided
        warn: Say | None = None,  # told what nobody expects, also where nothing else is to be told
        now: Callable[[], float] = time.time,
    ) -> None:
        self.agent, setup = played(setup)
        self.loop, self.setup, self.now = loop, setup, now
        self.id = setup.task or run_id(now())
        self.report: TaskReport | None = None
        self.run: Run | None = None  # the attempt that goes on, or the last one
        self.sinks: list[Sink] = []
        self.watchers: list[Callable[[], None]] = []  # called before and after an attempt begins, at a wait, when all is over
        self.raw: Callable[[bytes], None] | None = None  # gets the agent's own bytes of every attempt
        self.waits_until: float | None = None  # by `now`: the end of a wait between two attempts
        self.chance: Callable[[], float] = random.Random().random  # noqa: S311  # spreads retries; no secret hangs on it
        self._say = say or (lambda text: None)
        self._warn = warn or self._say
        self._troubles: list[str] = []  # of our own, that no attempt tells of
        self._reports: list[Report] = []
        self._whys: list[str] = []
        self._tried = Tried(max_turns=setup.ask.max_turns, others=tuple(stand.agent for stand in setup.stand_by))
        self._next: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._stopped: str | None = None
        self._handed: Ask | None = None  # what a new session is asked that took over from another
        self._model: str | None = None  # the one that was fallen back to (R11)
        self._asked = setup.ask.prompt  # what the task is, whoever carries it out
        self._decisions: list[str] = []  # made before there was a tape
        self._teller = -1  # the attempt that says how the task ended
        self._begun = False  # an attempt was made
        self._books = Books(setup, self.id, self._trouble)

    def start(self) -> "Task":
        """Begin with the first attempt; an agent that is not there leaves it to the next."""
        if self.setup.absent is not None:
            self._pass_on(absent(self.setup))
            return self
        ask = self.setup.ask
        if ask.session_id is None and ask.resume is None and not ask.continue_:
            ask = msgspec.structs.replace(ask, session_id=str(uuid.uuid4()))
        self._begin(ask)
        return self

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.report is not None

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _begin(self, ask: Ask, ended: Ended | None = None) -> None:
        self.waits_until = None
        if self._stopped is not None:  # asked to end between two attempts
            self._close()
            return
        now = self.now()
        name, setup = run_id(now), self.setup
        witness = Witness(self.loop, setup.cwd or os.getcwd(), name, setup.changes, setup.record)  # noqa: PTH109
        witness.before(lambda: self._set_off(ask, name, witness, ended or self._ended))

    def _set_off(self, ask: Ask, name: str, witness: Witness, then: Ended) -> None:
        if self._stopped is not None and self._reports:  # while the state of the files was taken
            witness.close()
            self._close()
            return
        run = self._recorded(ask, name, then, witness)
        self._tried.resumed = ask.resume
        if not self._begun:
            self._begun = True
            self._books.open(run.began)
        self._books.begin(run, len(self._reports) + 1)
        run.start()
        while self._decisions:
            run.note(self._decisions.pop(0))
        self._changed()
        if self._stopped is not None:
            run.stop(self._stopped)

    def _recorded(self, ask: Ask, name: str, then: Ended, witness: Witness) -> Run:
        """The next attempt, ready to start."""
        try:
            return self._ready(ask, name, then, witness, self.setup.record)
        except StenoError as problem:  # the first attempt is not made without its record; later ones are worth more
            self.run = None
            self._changed()
            if not self._begun:
                witness.close()
                raise
            run = self._ready(ask, name, then, witness, record=False)
            run.trouble(f"this attempt was not recorded: {problem}")
            return run

    def _pass_on(self, report: Report) -> None:
        """An attempt that could not be made: no process, no tape; its end is decided upon all the same."""
        self._reports.append(report)
        following = decide(report, self._tried, self.setup.policy, self.now(), 0.0)
        self._whys.append(following.why)
        if following.do != "other":
            self._close()
            return
        self._say(following.why)
        self._decisions.append(f"{following.do}: {following.why}")
        self._take_over()

    def _trouble(self, text: str) -> None:
        self._troubles.append(text)
        self._warn(text)

    def owes(self, run: str) -> bool:
        """Whether the ledger does not have the end of a run that it should have."""
        return self._books.owes(run)

    def _changed(self) -> None:
        for watch in self.watchers:
            watch()

    def _ready(self, ask: Ask, name: str, ended: Ended, witness: Witness, record: bool) -> Run:
        """An attempt whose record has begun. Others can see it before that: should we be killed now, it is found again."""
        left, now = self._left(), self.now()
        if ask.backend is not None and ask.backend.local:  # the agent would count the dollars of its maker's models
            ask = msgspec.structs.replace(ask, max_cost=None)
        elif left.cost is not None and left.cost > 0:  # its own account is the more exact one
            ask = msgspec.structs.replace(ask, max_cost=left.cost if ask.max_cost is None else min(ask.max_cost, left.cost))
        tape = tape_path(name, now) if record else None
        run = self.run = Run(self.loop, self.agent, ask, self.setup, name, tape, now, ended, witness)
        run.task = (self.id, len(self._reports) + 1)
        run.sinks, run.raw, run.warn = [*self.sinks], self.raw, self._warn
        self._changed()
        run.prepare(left)
        return run

    def _left(self) -> Budget:
        """What may still be spent."""
        budget = self.setup.budget
        spent = sum(report.cost.usd or 0.0 for report in self._reports)
        used = sum(report.tokens.total or 0 for report in self._reports)
        return msgspec.structs.replace(
            budget,
            cost=None if budget.cost is None else budget.cost - spent,
            tokens=None if budget.tokens is None else budget.tokens - used,
        )

    def _ended(self, run: Run) -> str:
        """An attempt is over: decide what comes next, and say so."""
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        self._reports.append(report)
        following = self._decided(report, run.wrong)
        self._whys.append(following.why)
        self._count(report, following)
        self._book(run, report, following.why)
        if following.do == "stop":
            self.loop.soon(self._close)
        else:
            (self._trouble if following.unasked else self._say)(following.why)
            self._wait(following.wait, lambda: self._go_on(run.ask, report, following))
        return f"{following.do}: {following.why}"

    def _book(self, run: Run, report: Report, why: str) -> None:
        """Write an attempt's row once its tape is closed: should we be killed in between, the row is made from the tape."""
        self.loop.soon(lambda: self._books.end(run, report, why))

    def _decided(self, report: Report, wrong: tuple[str, ...]) -> Next:
        if self._stopped is not None:
            return Next(do="stop", why=self._stopped)
        spent = self._spent()
        if spent is not None and report.verdict != "success":
            return Next(do="stop", why=spent)
        tried = msgspec.structs.replace(self._tried, runs=self._tried.runs + 1, wrong=wrong)
        return decide(report, tried, self.setup.policy, self.now(), self.chance())

    def _spent(self) -> str | None:
        """Why nothing more may be spent, if so."""
        left = self._left()
        if left.cost is not None and left.cost <= 0:
            return "max_budget: what the task may cost is spent"
        if left.tokens is not None and left.tokens <= 0:
            return "max_budget: the tokens that the task may use are used"
        return None

    def _count(self, report: Report, following: Next) -> None:
        tried = self._tried
        tried.runs += following.counts
        tried.limits = tried.limits + 1 if report.verdict == "rate_limit" else 0
        tried.failures = tried.failures + 1 if following.wait and report.verdict != "rate_limit" else 0
        tried.refused_resume = tried.refused_resume or following.do == "fresh"
        tried.corrections += following.prompt is not None
        tried.fell_back = tried.fell_back or following.model is not None
        if report.verdict == "rate_limit":
            self._model = following.model  # None: it was waited for the first one
        tried.max_turns = following.max_turns if following.max_turns is not None else tried.max_turns

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._next = then
        self.waits_until = self.now() + seconds if seconds else None
        self._timer = self.loop.after(seconds, self._proceed)
        self._changed()

    def _proceed(self) -> None:
        then, self._next, self._timer = self._next, None, None
        if then is not None:
            then()

    def _go_on(self, before: Ask, report: Report, following: Next) -> None:
        if following.do == "handover":
            self._summarise(report)
        elif following.do == "other":
            self._take_over()
        elif following.do == "resume":
            self._begin(_resumed(self._ask(), report.session_id, following.prompt or GO_ON))
        elif following.do == "again" and before.session_id is None:  # it was to go on with a session, and still is
            again = msgspec.structs.replace(self._ask(), prompt=before.prompt, session_id=None)
            self._begin(msgspec.structs.replace(again, resume=before.resume, fork=before.fork, continue_=before.continue_))
        else:
            self._begin(_anew(self._ask(), following.prompt))

    def _take_over(self) -> None:
        """R11: the next agent goes on, in a session of its own."""
        stand, *left = self.setup.stand_by
        self.setup = msgspec.structs.replace(self.setup, ask=msgspec.structs.replace(self.setup.ask, prompt=self._asked))
        self.setup = msgspec.structs.replace(taken_over(self.setup, stand, self._reports), stand_by=tuple(left))
        self.agent = named(stand.agent) or CLAUDE
        others = tuple(one.agent for one in left)
        self._tried = Tried(runs=self._tried.runs, max_turns=self.setup.ask.max_turns, others=others)
        self._handed = self._model = None
        self._begin(_anew(self._ask()))

    def _ask(self) -> Ask:
        """What was asked first; of a task that was handed over, with what the new session must know."""
        asked = self._handed if self._handed is not None else self.setup.ask
        if self._model is not None:  # an agent does not take one model for both
            asked = msgspec.structs.replace(asked, model=self._model, fallback_model=None)
        return msgspec.structs.replace(asked, max_turns=self._tried.max_turns)

    # -- handover (R8) -----------------------------------------------------------------------------------------------

    def _summarise(self, report: Report) -> None:
        """Ask the old session for a summary; what it says, the next session is told."""
        ask = _resumed(self._ask(), report.session_id, SUMMARISE)
        ask = msgspec.structs.replace(ask, max_turns=1, json_schema=None, steer=False)
        self._begin(ask, lambda run: self._summarised(run, report.session_id))

    def _summarised(self, run: Run, session: str | None) -> str:
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        said = ((report.result if report.verdict == "success" else None) or report.text).strip()
        summary = said or own_summary(self._reports)
        handed = f"handover: {'its summary goes' if said else 'it gave no summary; ours goes'} to a new session"
        self._reports.append(report)
        over = self._stopped or self._spent()
        why = over or handed
        self._whys.append(why)
        self._book(run, report, why)
        if over is not None:
            self._teller = -2 if report.verdict == "success" else -1  # a summary is not what was asked for
            self.loop.soon(self._close)
            return f"stop: {over}"
        self.loop.soon(lambda: self._books.refreshed(session))
        prompt = HANDOVER.format(summary=summary, prompt=self._asked)
        self._handed = msgspec.structs.replace(self.setup.ask, prompt=prompt)
        self._say(why)
        self._wait(0.0, lambda: self._begin(_anew(self._ask())))
        return why

    # -- ends --------------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """End the task: the run that goes on is asked to end, or the wait is given up."""
        self._stopped = self._stopped or why
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next = None, None
            self._say(f"{why}: not waiting any longer")
            self.loop.soon(self._close)
        elif self.run is not None:
            self.run.stop(why)

    def kill(self, why: str = "killed") -> None:
        """End it at once."""
        self._stopped = self._stopped or why
        if self.run is not None and self.run.report is None:
            self.run.kill(why)
        else:
            self.stop(why)

    def let_go(self) -> None:
        """Nothing more is done, whether it is over or not."""
        if self.run is not None:
            self.run.let_go()
        self._books.let_go()

    def _close(self) -> None:
        if self.report is None and self._reports:
            self.report = merged(self._reports, self._whys, self.id, self._teller)
            self._books.close(self.report, self.now())
            self.report.warnings += self._troubles
            self._changed()


def _resumed(ask: Ask, session: str | None, prompt: str) -> Ask:
    """Go on with a session."""
    return msgspec.structs.replace(ask, prompt=prompt, resume=session, session_id=None, continue_=False, fork=False)


def _anew(ask: Ask, more: str | None = None) -> Ask:
    """Begin in a new session, which is told more where there is more to tell."""
    prompt = ask.prompt if more is None else f"{ask.prompt}\n\n{more}"
    return msgspec.structs.replace(ask, prompt=prompt, resume=None, session_id=str(uuid.uuid4()), continue_=False, fork=False)
