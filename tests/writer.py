"""Write many small runs to a ledger, for tests of concurrent writers: URL, first, count."""

import sys

from steno.ledger.rows import ParsedRequest, ParsedSession, RowBatch, stable_id
from steno.ledger.run_record import upsert_run
from steno.ledger.store import open_ledger
from steno.ledger.upsert import Pricer
from steno.report import Cost, ModelSummary, Report, Tokens

AT = 1_763_000_000_000
MODEL = "claude-sonnet-4-6"


def a_run(place: int) -> tuple[Report, RowBatch]:
    """A run with one request; the agent reports a little more than the request shows."""
    run, session, at = f"run{place:08d}", f"session{place % 50}", AT + place * 1000
    request = ParsedRequest(
        stable_id("claude", "message", place),
        session,
        run,
        f"msg{place}",
        None,
        MODEL,
        at,
        3,
        1000,
        20_000,
        1,
    )
    told = ModelSummary(3, 1000, 20_000, 101, 0.0112)
    report = Report(
        agent="claude",
        run_id=run,
        session_id=session,
        model=MODEL,
        cwd="/home/ada/engine",
        verdict="success",
        ok=True,
        turns=1,
    )
    report.tokens = Tokens(3, 1000, 20_000, 101, 0, 21_104)
    report.cost, report.models, report.requests = Cost(0.0112, "reported"), {MODEL: told}, 1
    return report, RowBatch(
        "claude",
        {session: ParsedSession(project="/home/ada/engine", last_at=at)},
        [request],
        [],
        [],
        [],
        [],
    )


def main(url: str, first: int, count: int) -> None:
    """Book them, one transaction each."""
    store, priced = open_ledger(url), Pricer()
    for place in range(first, first + count):
        report, batch = a_run(place)
        with store.transaction():
            upsert_run(store, report, batch, AT + place * 1000, priced)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
