"""Codex: how it is started, and how to read what it prints and keeps. It never starts a process, opens a file or asks the time.

Token algebra. `input_tokens` includes `cached_input_tokens` and `cache_write_input_tokens`; `output_tokens` includes
`reasoning_output_tokens`: the disjoint counters are input - cached - written, written, cached, output. `turn.completed.usage`
sums all requests of the *thread*: of a new one that is the run, of a resumed or forked one it is everything since its
beginning. A run's own part is the sum of its `token_usage_record`s (in older versions of the `last_token_usage`s) in the
rollout; without the rollout the thread's sum is an upper bound, and a warning says so. The context is the last request's
input; the window is `model_context_window`. Neither model nor cost is in the stream; no cost is told at all.

Ends. Only turn.completed and turn.failed end a turn; `error` lines and items do not. A turn that has no end was interrupted.
Calls that were never carried out (unknown tools, patches that the sandbox forbids) are in the rollout, and as a line of
stderr, but not in the stream.

`lines` is the schema, `words` the tables, `reader` the stream, `rollout` the kept files, `alongside` a rollout beside a stream,
`kept` where they lie, `start` how it is started.
"""

from ...environment import Surroundings
from ...report import Wording
from ..tell import codex as looks_like
from ..values import Abilities, Agent
from .kept import beside, folders, keeps, usages
from .reader import Reader
from .start import CANNOT, MODES, SIZES, is_session, message, shapes, start
from .words import allow_rule, exits, window

# Seen in the environment of a command that Codex 0.166.0 ran, and set by no person.
SURROUNDINGS = Surroundings(
    drop=(
        "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
        "CODEX_CI",
        "CODEX_MANAGED_BY_NPM",
        "CODEX_MANAGED_PACKAGE_ROOT",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
    ),
    put=(),
    keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
)

AGENT = Agent(
    "codex",
    Reader,
    window,
    allow_rule,
    looks_like,
    keeps,
    folders,
    usages,
    start,
    message,
    SURROUNDINGS,
    "npm install -g @openai/codex",
    is_session,
    cannot=CANNOT,
    abilities=Abilities(resume=True, json=True, schema=True, file_events=True),
    wording=Wording("codex exec resume {session} {prompt}", "", "--config {rules}", "--json"),
    package="@openai/codex",
    tested=("0.166.0",),
    exits=exits,
    beside=beside,
    backends=("ollama", "openai"),
    credentials=(".codex/auth.json",),
    sizes=SIZES,
    modes=MODES,
    at_first=("system_prompt",),
    shapes=shapes,
)
