"""Claude Code: how to read what it prints and keeps. It never starts a process, opens a file or asks the time.

Token algebra. Four counters that do not overlap: input_tokens, cache_creation_input_tokens,
cache_read_input_tokens, output_tokens; thinking is a part of output. One API message is told by k
`assistant` lines with one block each, all with the usage of the message's *start*: its output is a
lower bound (often 1) unless a stop_reason stands beside it. `result.usage` sums the requests of one
turn of the main loop (1.0.100: only its last request); `modelUsage` and `total_cost_usd` sum over
the process, subagents and helper calls included, and from 2.1.3xx on over all resumed runs of the
session: `model_usage_since_last_result` is then the part that is new.

`lines` is the schema, `names` the tables, `reader` the frequent lines, `rare` the others, `rules` its permissions,
`kept` the transcripts, `start` how it is started.
"""

from .reader import ClaudeReader, looks_like
from .start import MODELS_BY_SIZE, build_command, encode_message, is_session_id, supports_schema
from .tables import allow_rule, context_window
from .transcripts import is_transcript_line, scan_usage, transcript_folders

__all__ = [
    "MODELS_BY_SIZE",
    "ClaudeReader",
    "allow_rule",
    "build_command",
    "context_window",
    "encode_message",
    "is_session_id",
    "is_transcript_line",
    "looks_like",
    "scan_usage",
    "supports_schema",
    "transcript_folders",
]
