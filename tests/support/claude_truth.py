"""What a set of Claude's witnesses can know of a session, and what is true."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tests.support.claude_witness import ClaudeSession, doubled_cost
from tests.support.session_model import COUNTERS, Case, Figures, Request, add, history

Key = tuple[int, int]  # run and place of a request


class Expected(Struct, frozen=True):
    """The smallest and the largest right answer; equal where the witnesses determine it.

    `must_label`: a sum below `high` must say that it is a lower bound. `unknown`: figures that
    these witnesses don't determine at all.
    """

    low: Figures
    high: Figures
    truth: Figures
    must_label: bool = False
    unknown: frozenset[str] = frozenset()


def expected(case: Case) -> Expected:
    return _Knowledge(case).expected()


class _Knowledge:
    def __init__(self, case: Case) -> None:
        self.session = ClaudeSession(case)
        self.runs = case.runs
        self.dialect = self.session.dialect
        self.seen = case.seen
        self.numbers = range(len(case.runs))
        self.uncertain: set[Key] = set()  # perhaps in the totals of the file that copied them
        self.messages = self._messages()
        self.exact = {run for run in self.numbers if self._is_exact(run)}

    # -- who saw what ----------------------------------------------------------------------------

    def sees_output(self, run: int) -> bool:
        return f"out{run}" in self.seen or f"tape{run}" in self.seen

    def sees_result(self, run: int) -> bool:
        return self.sees_output(run) and self.runs[run].end in ("result", "interrupt")

    def sees_file(self, run: int) -> bool:
        return f"file{self.session.session_of(run)}" in self.seen

    def _messages(self) -> dict[Key, bool]:
        """The requests that some witness shows, and whether with their final usage."""
        found: dict[Key, bool] = {}
        for run in self.numbers:
            lines = [] if self.runs[run].format == "json" else list(self._streamed(run))
            for place in lines if self.sees_output(run) else ():
                self._see(found, run, place, self.dialect.is_stream_final)
        for number, session in enumerate(self.session.sessions):
            if f"file{number}" in self.seen:
                copied = self._copied(session[0])
                if any(self._sees_cost_state(run) for run in session):
                    self.uncertain |= {key for run in copied for key in self.session.keys(run)}
                for run in (*session, *copied):
                    for place in self._main(run, run in copied):
                        self._see(found, run, place, self.dialect.is_transcript_final)
            if f"agents{number}" in self.seen:
                for run in session:
                    for place in self._places(run, ("sub", "warmup")):
                        self._see(found, run, place, self.dialect.is_transcript_final)
        return found

    def _shown_elsewhere(self) -> set[Key]:
        """The requests that stdout, a recording or their own session's file shows."""
        runs = [run for run in self.numbers if self.sees_output(run) or self.sees_file(run)]
        return {key for run in runs for key in self.session.keys(run)}

    def _see(self, found: dict[Key, bool], run: int, place: int, is_final: bool) -> None:
        is_final = is_final and self.runs[run].requests[place].kind != "aborted"
        found[(run, place)] = found.get((run, place), False) or is_final

    def _places(self, run: int, kinds: Iterable[str]) -> list[int]:
        requests = self.runs[run].requests
        return [place for place, request in enumerate(requests) if request.kind in kinds]

    def _streamed(self, run: int) -> list[int]:
        if self.runs[run].format == "verbose" and self.runs[run].end == "kill":
            return []
        if self.runs[run].format == "verbose" and self.runs[run].end == "term":
            return []
        shown = self._places(run, ("main", "aborted"))
        for place in self._places(run, ("sub",)):
            if self.session._shows_subagent(run, place, is_stream=True):
                shown.append(place)
        return shown

    def _main(self, run: int, is_copied: bool) -> list[int]:
        is_inline = self.dialect.agents == "inline" and not is_copied
        return self._places(run, ("main", "aborted", *(("sub",) if is_inline else ())))

    def _copied(self, run: int) -> list[int]:
        is_copy = self.runs[run].is_fork or self.dialect.copies_on_resume
        return history(self.runs, run) if is_copy else []

    # -- totals ----------------------------------------------------------------------------------

    def before(self, run: int) -> int | None:
        """The run from whose totals a process continues."""
        stored = [n for n in history(self.runs, run) if self.runs[n].end != "kill"]
        return stored[-1] if stored else None

    def _is_exact(self, run: int) -> bool:
        """Whether the agent's total of this run alone is known."""
        if not self.sees_result(run):
            return False
        one = self.runs[run]
        if self.dialect.totals == "process" or (self.dialect.has_since and one.format == "stream"):
            return True
        before = self.before(run)
        is_on_tape = f"tape{run}" in self.seen  # says whether it resumes, with the totals before
        is_known_new = is_on_tape and one.origin is None
        if before is None and (is_known_new or self.sees_file(run) or self._covers_all(run)):
            return True
        if before is None:
            return False
        if self.dialect.has_cost_state and is_on_tape:
            return True
        return not self._crosses_fork(run) and self._knows_stored(before)

    def _covers_all(self, run: int) -> bool:
        """Whether the messages in stdout add up to the total, so that there was nothing before."""
        places = () if self.runs[run].format == "json" else self._streamed(run)
        return len(places) == len(self._of(run))

    def _knows_stored(self, run: int) -> bool:
        """Whether the totals that the next process continues from are known."""
        if self.dialect.has_cost_state and self.sees_file(run):
            return True
        return self.sees_result(run) and self.runs[run].end == "result"

    def _crosses_fork(self, run: int) -> bool:
        """Whether the totals before it stand in another session, and nothing seen says so."""
        number = self.session.session_of(run)
        is_other = any(self.session.session_of(n) != number for n in history(self.runs, run))
        return is_other and not (self.dialect.has_cost_state and self.sees_file(run))

    def _sees_cost_state(self, run: int) -> bool:
        is_written = self.dialect.has_cost_state and self.runs[run].end != "kill"
        return is_written and self.sees_file(run)

    def _chain(self, run: int) -> set[Key]:
        """The requests that the totals at the end of a run count."""
        return {
            (number, place)
            for number in (*history(self.runs, run), run)
            for place, request in enumerate(self.runs[number].requests)
            if number == run or request in self.session.stored(number)
        }

    # -- the answer ------------------------------------------------------------------------------

    def expected(self) -> Expected:
        every = [(run, place) for run in self.numbers for place in range(len(self._of(run)))]
        truth = add(self._of(run)[place].figures() for run, place in every)
        if not self.dialect.has_models:
            return self._without_models(truth)
        known = {key for key in every if key[0] in self.exact}
        possible: set[Key] = set()
        extra = Figures()
        is_ambiguous = False
        for run in self.numbers:
            if self._sees_cost_state(run):
                known |= {key for key in self._chain(run) if self._is_stored(key)}
            if self.dialect.totals == "session" and self.sees_result(run):
                possible |= self._chain(run)
                if run in self.exact:
                    continue
                crosses = self._crosses_fork(run)
                if self.runs[run].format == "json" and not crosses:
                    known |= self._chain(run)
                else:
                    is_ambiguous = True
                if crosses:
                    earlier = self._chain(run) - {key for key in every if key[0] == run}
                    extra = extra.plus(add(self._figures(key) for key in earlier))
        uncertain = self.uncertain - known - self._shown_elsewhere()
        low = add(self._low(key, known) for key in every if key not in uncertain)
        high = add(self._high(key, known | possible) for key in every).plus(extra)
        high = high.plus(self._unlinked(uncertain))
        high = replace(high, requests=truth.requests)
        open_outputs = [
            key for key, is_final in self.messages.items() if not is_final and key not in known
        ]
        is_unpriced = self.dialect.kinds.model == "nobody-knows-it"
        unknown = frozenset({"cost"} if is_unpriced else ())
        must_label = bool(open_outputs) or is_ambiguous
        return Expected(low, high, truth, must_label, unknown)

    def _unlinked(self, uncertain: set[Key]) -> Figures:
        """Messages in a fork's file that no id connects with the document of their run."""
        shown = set(self.messages)
        documents = [
            run
            for run in self.numbers
            if self.sees_result(run) and self.runs[run].format == "json" and not self.sees_file(run)
        ]
        copied = {key for run in documents for key in self.session.chain(run) if key in shown}
        if any(self._copied(session[0]) for session in self._seen_sessions()):
            return add(self._figures(key) for key in copied | uncertain)
        return Figures()

    def _seen_sessions(self) -> list[list[int]]:
        sessions = enumerate(self.session.sessions)
        return [session for number, session in sessions if f"file{number}" in self.seen]

    def _of(self, run: int) -> tuple[Request, ...]:
        return self.runs[run].requests

    def _is_stored(self, key: Key) -> bool:
        return self._of(key[0])[key[1]] in self.session.stored(key[0])

    def _figures(self, key: Key) -> Figures:
        return self._of(key[0])[key[1]].figures()

    def _low(self, key: Key, known: set[Key]) -> Figures:
        request = self._of(key[0])[key[1]]
        is_seen = key in self.messages
        if key in known:
            figures = request.figures()
        elif is_seen:
            figures = request.figures(None if self.messages[key] else 1, has_web=False)
        else:
            return Figures()
        return replace(figures, requests=int(is_seen))

    def _high(self, key: Key, known: set[Key]) -> Figures:
        if key in known:
            return self._figures(key)
        if key in self.messages:
            return self._of(key[0])[key[1]].figures(None if self.messages[key] else 1)
        return Figures()

    def _without_models(self, truth: Figures) -> Expected:
        """1.0.72: a total in dollars only, in which each answer counts twice."""
        seen = set(self.messages)
        shown = add(self._low(key, set()) for key in seen)
        cost = sum(doubled_cost(self._of(run)) for run in self.exact)
        cost += sum(self._low(key, set()).cost for key in seen if key[0] not in self.exact)
        low = replace(shown, cost=cost)
        high = replace(low, requests=truth.requests)
        documents = [
            run
            for run in self.exact
            if self.runs[run].format == "json" and not any(key[0] == run for key in seen)
        ]
        unknown = frozenset(COUNTERS if documents else ())
        return Expected(low, high, truth, bool(documents), unknown)
