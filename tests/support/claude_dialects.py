"""How the versions of Claude Code count and write, from recordings of each."""

from __future__ import annotations

from msgspec import Struct

from tests.support.session_model import Kinds


class Dialect(Struct, frozen=True):
    """What one version writes. `totals`: of a process or of the session so far."""

    kinds: Kinds
    totals: str = "process"
    has_models: bool = True  # modelUsage
    has_since: bool = False  # model_usage_since_last_result
    has_cost_state: bool = False
    is_stream_final: bool = False  # the usage in stdout has the output
    is_transcript_final: bool = True
    agents: str = "folder"  # where subagents' files are: folder, beside, inline
    copies_on_resume: bool = False  # a new session id, with the messages so far
    has_ids: bool = True  # stdout has uuids


OPUS = "claude-opus-5-5"
SONNET = "claude-sonnet-4-6"
SONNET_4 = "claude-sonnet-4-20250514"
HAIKU = "claude-haiku-4-5-20251001"
HAIKU_3 = "claude-3-5-haiku-20241022"
ALL_ENDS = ("result", "kill", "term", "interrupt")
DIALECTS = {
    "1.0.72": Dialect(
        Kinds(SONNET_4, HAIKU_3, extra=("helper", "sub"), can_fork=False),
        has_models=False,
        is_stream_final=True,
        agents="inline",
        copies_on_resume=True,
        has_ids=False,
    ),
    "2.0.59": Dialect(
        Kinds(SONNET, HAIKU, extra=("helper", "sub", "warmup", "compact")),
        is_stream_final=True,
        agents="beside",
    ),
    "2.1.30": Dialect(
        Kinds(SONNET, HAIKU, extra=("helper", "sub", "compact")), is_transcript_final=False
    ),
    "2.1.126": Dialect(Kinds(SONNET, HAIKU, extra=("sub", "compact", "lost"), has_web=True)),
    "2.1.290": Dialect(
        Kinds(OPUS, HAIKU, extra=("sub", "compact", "helper"), has_web=True), "session"
    ),
    "2.1.327": Dialect(
        Kinds(
            *(OPUS, HAIKU),
            ends=ALL_ENDS,
            extra=("sub", "compact", "lost", "helper"),
            has_web=True,
        ),
        "session",
        has_since=True,
        has_cost_state=True,
    ),
    "2.1.327 unpriced": Dialect(
        Kinds("nobody-knows-it", HAIKU, extra=("sub", "compact")),
        "session",
        has_since=True,
        has_cost_state=True,
    ),
}
