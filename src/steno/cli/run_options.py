"""The command line of `steno run`: its options, and the prompt."""

import argparse
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..config import SETTINGS
from ..errors import StenoError
from .options import CommandParser, number_type, option_name
from .output_options import add_output_options
from .stream_options import add_hook_options
from .sync_options import RUN_OPTIONS, add_sync_destinations, check_sync_options
from .terminal import is_terminal, stdin_bytes

ESCAPE_PREFIX = "\0"  # marks arguments that only look like an option
EXAMPLES = """examples:
  steno run "fix the failing test"
  steno run --max-turns 20 --max-cost 5 --allow 'Bash(make test)' "fix the failing test"
  git diff | steno run --json | jq .verdict                 read the prompt from stdin
  steno run --resume 3f9a21c0 "now update the docs"         continue a run or session
  steno run --backend ollama --model qwen3-coder "..."      use a local model server
  steno run --worktree=parser "rewrite the parser"          work in a new git worktree
  steno run --model small --json-schema bug.json "which test fails?" | jq .file
  steno run --fallback-agent codex --on-limit fallback "fix the failing test"
  steno run --on file_change:*.py 'ruff check {path}' "fix the failing test"
  steno run --otel=http://localhost:4318 --notify ntfy://my-topic "fix the failing test"
  steno run "what is new?" -- --settings ci.json            pass arguments to the agent

Without PROMPT, --prompt and --file the prompt is read from stdin. Use --prompt=-x for a
one-word prompt that begins with a dash. Options can also be set by STENO_* variables and steno.toml
files (see: steno config). The exit code follows the verdict: 0 success, 1 failed, 2 usage error,
3 not finished, 75 rate limited, 77 not signed in or out of credit, 124 timeout or stalled,
126 not executable, 127 not installed, 130 interrupted, 137 killed.
"""


def parse_args(args: list[str]) -> argparse.Namespace:
    """Parse the options; everything after `--` is passed to the agent."""
    for arg in args:
        _decode_utf8(os.fsencode(arg), "argument")
    end = args.index("--") if "--" in args else len(args)
    parser = _build_parser()
    options = parser.parse_intermixed_args([_escape(arg) for arg in args[:end]])
    for name, value in vars(options).items():
        setattr(options, name, _unescape(value))
    options.args = args[end + 1 :]
    prompts = options.prompts
    if len(prompts) > 1:
        parser.error(f"expected one PROMPT, found {len(prompts)}: put it in quotes")
    if prompts and options.prompt not in (None, prompts[0]):
        parser.error("PROMPT and --prompt cannot be used together")
    if prompts:
        options.prompt = prompts[0]
    check_sync_options(parser, options, RUN_OPTIONS)
    return options


def _escape(arg: str) -> str:
    """Hide a prompt that begins with a dash from argparse."""
    if re.match(r"-.*\s", arg, re.S) and not re.match(r"--[a-z-]+=", arg):
        return ESCAPE_PREFIX + arg
    return arg


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    return value.removeprefix(ESCAPE_PREFIX) if isinstance(value, str) else value


def _build_parser() -> CommandParser:
    parser = CommandParser("run", "Run an agent and report how it ended.", EXAMPLES)
    parser.usage = "steno run [OPTIONS] [PROMPT] [-- AGENT ARGUMENTS]"
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="prompt (default: stdin)")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="prompt, for text that starts with a dash: --prompt=-x"
    )
    parser.add_argument("--file", metavar="PATH", help="read the prompt from a file; - is stdin")
    parser.add_argument("--cwd", metavar="DIR", help="working directory (default: .)")
    parser.add_argument(
        "--worktree", metavar="[=NAME]", help="work in a new git worktree next to the repository"
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="stop at the first broken rule of a policy, and check the rest at the end",
    )
    add_hook_options(parser)
    group = parser.add_argument_group("session (default: a new one)")
    group.add_argument("--session-id", metavar="UUID", help="ID of the new session")
    group.add_argument(
        "--resume", metavar="ID", help="continue a session: its ID, or a prefix of a run ID"
    )
    group.add_argument(
        "--fork", action="store_true", default=None, help="continue a copy of the --resume session"
    )
    group.add_argument(
        "--continue",
        dest="continue_",
        action="store_true",
        default=None,
        help="continue the latest session of the folder",
    )
    forms = parser.add_argument_group("output (default: the answer)").add_mutually_exclusive_group()
    help_texts = {
        "json": "print the report as one line of JSON",
        "raw": "print the agent's own output",
    }
    for form, text in help_texts.items():
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=text)
    add_output_options(parser, to_stdout=False)
    add_settings(parser)
    add_sync_destinations(parser, RUN_OPTIONS)
    group = parser.add_argument_group("replay (--agent replay plays a recording)")
    group.add_argument("--recording", metavar="FILE", help="recording to play (file or folder)")
    group.add_argument(
        "--speed",
        metavar="N",
        type=number_type("a number of at least 0", 0, sys.float_info.max),
        help="playback speed (default: 1); 0 plays without pauses",
    )
    parser.add_debug()
    return parser


def add_settings(parser: CommandParser, without: Collection[str] = ()) -> None:
    """Options for all settings, except those named in `without`."""
    groups: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.name in without:
            continue
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        action: dict[str, Any] = {"action": "append"} if setting.is_repeatable else {}
        shown = (
            {"metavar": setting.metavar}
            if setting.metavar
            else {"action": "store_true", "default": None}
        )
        help_text = setting.help_text
        default = setting.default
        if default is not None and default is not False and default not in ((), {}):
            text = default
            if isinstance(default, tuple):
                text = ", ".join(map(str, default))
            elif isinstance(default, float):
                text = f"{default:g}"
            help_text = f"{help_text} (default: {text})".replace("%", "%%")
        groups[setting.group].add_argument(
            option_name(setting.name), dest=setting.name, help=help_text, **{**action, **shown}
        )


def read_prompt(options: argparse.Namespace) -> str:
    if options.prompt is not None and options.file is not None:
        raise StenoError("PROMPT and --file cannot be used together")
    if options.prompt is not None:
        return str(options.prompt)
    if options.file is not None and options.file != "-":
        path = Path(options.file)
        try:
            return _decode_utf8(path.read_bytes(), f"--file {path}")
        except OSError as error:
            raise StenoError(f"--file {path}: cannot read: {error.strerror or error}") from None
    if options.file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        hint = "; arguments after -- are passed to the agent" if options.args else ""
        raise StenoError(f"no prompt: give PROMPT or --file PATH, or pipe it to stdin{hint}")
    return _decode_utf8(stdin_bytes().read(), "stdin")


def _decode_utf8(data: bytes, source: str) -> str:
    """Decode strictly: a prompt is passed on unchanged or not at all."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        excerpt = data[max(0, error.start - 20) : error.start + 20]
        raise StenoError(f"{source}: not UTF-8 at byte {error.start + 1}: {excerpt!r}") from None
