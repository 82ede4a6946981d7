"""Qwen Code: how to start it, and how to read what it prints and keeps. It never opens a file or asks the time.

Its stream has Claude Code's shape, and is read by that reader first; what differs is put right after it.

Token algebra. `input_tokens` includes `cache_read_input_tokens`, nothing is said of cache writes (0), and thoughts are in
`output_tokens`. One answer of the model can be two messages, with one id each: the first, its text, then says 0 of
everything, and the second tells what the request used. `result.usage` sums over the process, requests of helpers included
(the one that keeps its memory): more than the messages show. The json format names them in `stats`, model by model. There
is no cost. Figures begin afresh with every process. What it keeps tells each request under the names of Google's API:
`promptTokenCount` includes `cachedContentTokenCount`, `candidatesTokenCount` includes `thoughtsTokenCount`.

A request that failed for good is told as if the model had said it, "[API Error: 401 ...]", in a message that used nothing,
and the run ends with `success` and exit code 0. At the limit of turns there is no result, and the exit code is 53.

`reader` is the stream, `chats` what it keeps, `names` the tables, `start` how it is started.
"""

from ...environment import Surroundings
from ...report import Wording
from .. import tell
from ..values import Abilities, Agent
from .chats import folders, keeps, usages
from .names import allow_rule, window
from .reader import Reader
from .start import CANNOT, MODES, OWN, exits, is_session, message, start

AGENT = Agent(
    "qwen",
    Reader,
    window,
    allow_rule,
    tell.qwen,
    keeps,
    folders,
    usages,
    start,
    message,
    Surroundings(
        drop=("QWEN_CODE", "QWEN_CODE_IDE_SERVER_PORT", "QWEN_CODE_IDE_WORKSPACE_PATH"),
        put=(("QWEN_TELEMETRY_ENABLED", "false"),),
        keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY", "OPENROUTER_API_KEY"),
    ),
    "npm install -g @qwen-code/qwen-code",
    is_session,
    CANNOT,
    Abilities(resume=True, json=True, partial=True, schema=True, context=True, file_events=True),
    Wording(
        "qwen --resume {session} -p {prompt}",
        "--max-session-turns N",
        "--allowed-tools {rules}",
        "-o stream-json",
    ),
    "@qwen-code/qwen-code",
    ("0.15.10",),
    exits,
    credentials=(".qwen/oauth_creds.json",),
    modes=(*OWN, *MODES),
    single=("mcp_config",),
)
