"""What a set of the witnesses of Codex, Gemini, Copilot and Qwen can know of a session."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.claude_truth import Expected
from tests.support.other_witness import CLASSES, OtherSession
from tests.support.session_files import Key
from tests.support.session_model import COUNTERS, PRICES, Case, Figures, add


def expected(case: Case) -> Expected:
    session = CLASSES[case.agent](case)
    listed, known, possible, outputs, is_ambiguous = _knowledge(session, case.seen)
    every = {key for run in range(len(case.runs)) for key in session.keys(run)}
    shown = outputs - known
    low = session.total(known)
    high = low.plus(session.total(possible - known))
    high = high.plus(add(_output(session, key) for key in shown - possible))
    if is_ambiguous:  # a fork's total, of which nothing says what it repeats
        high = high.plus(session.total(possible))
    unknown = set()
    nameless = not session.knows_model and known - listed
    if nameless or shown or not (known or shown) or PRICES[session.kinds.model] is None:
        unknown.add("cost")
    truth = session.total(every)
    return Expected(
        replace(low, requests=len(listed)),
        replace(high, requests=truth.requests),
        truth,
        # What is not known at all is counted as such, and no lower bound.
        must_label=case.agent in ("codex", "qwen") and any(getattr(low, n) for n in COUNTERS),
        unknown=frozenset(unknown),
    )


def _output(session: OtherSession, key: Key) -> Figures:
    return Figures(output=session.of(key).usage.output)


def _knowledge(
    session: OtherSession, seen: set[str]
) -> tuple[set[Key], set[Key], set[Key], set[Key], bool]:
    """The requests that are listed, known, perhaps counted, and known by their output only."""
    listed: set[Key] = set()
    possible: set[Key] = set()
    outputs: set[Key] = set()
    for run in range(len(session.runs)):
        if f"file{session.session_of(run)}" in seen:
            listed |= session.in_file(run)
            outputs |= session.outputs(run)
        if f"tape{run}" in seen:
            listed |= session.on_tape(run)
    known = set(listed)
    is_ambiguous = False
    for run in range(len(session.runs)):
        if not {f"out{run}", f"tape{run}"} & seen:
            continue
        outputs |= session.outputs(run)
        known |= session.shown(run)
        if f"tape{run}" in seen:  # with what it kept of the session's file
            possible |= session.keys(run)
        summed = session.summed(run)
        possible |= summed
        if summed and not session.keys(run, "main") <= listed:
            is_fork = any(session.runs[number].is_fork for number, _ in summed)
            is_ambiguous |= is_fork
            if not (is_fork or session.shown(run)):
                known |= summed
    return listed, known, possible | known, outputs, is_ambiguous
