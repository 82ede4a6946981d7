"""Fill the tables of a ledger with many made-up requests, and print their totals.

Run as `python -m benchmarks.million LEDGER`. One SQL statement computes the sums that an import
would have stored.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from typing import Any

from benchmarks.generate import START
from benchmarks.transcripts import HAIKU, OPUS, PRICES, SONNET, Spend, Totals
from steno.ledger.store import Row, Store, open_ledger

SESSIONS, EACH = 5_000, 200
PROJECTS, DAYS = 12, 180
AGENT = "claude"

REQUEST = (
    *(
        "id",
        "agent",
        "session",
        "run",
        "kind",
        "message",
        "parent",
        "model",
        "at",
        "input",
        "cache_write",
        "cache_read",
    ),
    *("output", "reasoning", "cache_write_1h", "cost_nano", "saved_nano", "source"),
)
SESSION = (
    "id",
    "agent",
    "agent_version",
    "project",
    "model",
    "title",
    "first_at",
    "last_at",
    "prompts",
    "compactions",
)
SPEND = """
INSERT INTO spend (session, model, hour, agent, project,
                   requests, input, cache_write, cache_read, output, reasoning, cache_write_1h,
                   reported_nano, computed_nano, saved_nano, unpriced, unpriced_tokens)
SELECT r.session, r.model, r.at / 3600000, r.agent, s.project,
       count(*), sum(r.input), sum(r.cache_write), sum(r.cache_read), sum(r.output),
       sum(r.reasoning), sum(r.cache_write_1h), 0, sum(r.cost_nano), sum(r.saved_nano), 0, 0
FROM requests r JOIN sessions s ON s.id = r.session
GROUP BY r.session, r.model, r.at / 3600000, r.agent, s.project
"""


class Writer:
    """The rows of one ledger, session by session."""

    def __init__(self, seed: int, sessions: int) -> None:
        self.rng, self.count = random.Random(seed), sessions
        self.totals, self.serial = Totals(), 0
        self.sessions: list[Row] = []

    def requests(self) -> Iterator[Row]:
        for number in range(self.count):
            yield from self.session(number)

    def session(self, number: int) -> Iterator[Row]:
        """A session of a few hours with one model and a cheaper second one."""
        name = f"{number:08x}-0000-4000-a000-{self.rng.getrandbits(48):012x}"
        model = self.rng.choice((SONNET, SONNET, OPUS))
        first = at = int((START - self.rng.random() * DAYS * 86_400) * 1_000)
        for _ in range(EACH):
            at += self.rng.randrange(1_000, 90_000)
            yield self.request(name, HAIKU if self.rng.random() < 0.1 else model, at)
        project = f"/srv/code/project-{number % PROJECTS}"
        self.sessions.append(
            (name, AGENT, "2.1.197", project, model, "Find every caller", first, at, 9, 0)
        )
        self.totals.sessions += 1

    def request(self, session: str, model: str, at: int) -> Row:
        draw = self.rng.randrange
        spend = Spend(1, draw(1, 12), draw(200, 6_000), draw(9_000, 160_000), draw(40, 2_000))
        self.totals.models.setdefault(model, Spend()).add(spend)
        self.serial += 1
        prices = PRICES[model]
        head = (
            self.serial,
            AGENT,
            session,
            None,
            "request",
            f"msg_01{self.serial:022}",
            None,
            model,
            at,
        )
        counts = (spend.input, spend.cache_write, spend.cache_read, spend.output, 0, 0)
        return (
            *head,
            *counts,
            spend.nano(model),
            spend.cache_read * (prices[0] - prices[3]),
            "computed",
        )


def fill(store: Store, writer: Writer) -> None:
    with store.transaction():
        store.upsert("requests", REQUEST, writer.requests(), "")
        store.upsert("sessions", SESSION, writer.sessions, "")
        store.execute(SPEND)


def generate(path: str, sessions: int = SESSIONS, seed: int = 7) -> dict[str, Any]:
    """Write sessions of 200 requests each; returns the totals."""
    writer = Writer(seed, sessions)
    store = open_ledger(path)
    try:
        fill(store, writer)
    finally:
        store.close()
    return writer.totals.plain()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a ledger of made-up requests; print its totals as JSON."
    )
    parser.add_argument("ledger", help="path of the new ledger")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    print(json.dumps(generate(given.ledger, given.sessions, given.seed)))


if __name__ == "__main__":
    main()
