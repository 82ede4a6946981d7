"""Writes the reference pages from the program itself, or checks that they are up to date.

    python docs/reference/generate.py [FOLDER]            write the pages (into this folder, or into FOLDER)
    python docs/reference/generate.py --check [FOLDER]    exit 1 and name every page that differs

Names, types, docstrings, hints and help texts are taken from the source. What a docstring does not tell of a
field stands in `MEANINGS`; a field without a meaning, or a meaning without its field, is an error.
"""

import ast
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, get_origin

import ledger_page as ledger_tables
import msgspec

import steno
from steno import cli, event, report, testing
from steno import event as ev
from steno.agents import AGENTS
from steno.agents.base import OPTION_FIELDS, option_support
from steno.analysis import verdict
from steno.analysis.verdict import ERROR_CATEGORIES, RULES, Facts
from steno.config import AGENT_SETTINGS, MODEL_SIZES, SETTINGS, SETTINGS_BY_NAME, Setting
from steno.ledger import importer as pull
from steno.ledger import results as finds
from steno.ledger import results as lists
from steno.ledger import totals as answer_sums
from steno.report import BackgroundTask, DeniedCall, Report
from steno.testing import checks as readings
from steno.views.formatting import VERDICT_DISPLAY

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/reference/generate.py: change the source or the generator, not this page. -->"
WIDTH = "100"  # columns of the help texts
EXITS = sorted(set(report.EXIT_CODES.values()))

# -- what the fields of a report mean ---------------------------------------------------------------------------

MEANINGS: dict[str, dict[str, str]] = {
    "Report": {
        "schema": "The version of these names. It rises when one of them changes its meaning or goes away.",
        "source": "What was read: a path, or `stdin`, `bytes`, `stream`, `lines`.",
        "agent": "The agent's name; null where nothing in the input was understood.",
        "agent_version": "The agent's version, as it says itself. The stream of Claude Code 1.0.100 does not.",
        "model": "The main thread's model, as announced at the start; else that of the first request.",
        "session_id": "The agent's conversation. Several runs can belong to one session.",
        "run_id": "The run, by the name that steno gave it: of recordings that steno made itself.",
        "cwd": "The folder that the agent worked in.",
        "api_key_source": "The agent's label for where its key comes from. A label, not a key.",
        "verdict": "How the run ended: one word of [verdicts](verdicts.md).",
        "ok": "The verdict is `success`, and no advisory warning was given.",
        "succeeded": "The weaker question: some output, and exit code 0 "
        "(where no code is known: a complete recording without an error).",
        "error": "What went wrong, in the agent's words where it has any. Cut after 4,096 characters.",
        "error_category": "A coarse class: `rate_limit`, `auth`, `api`, `interactive`, `background-task`, `subprocess`, "
        "`timeout`, or null.",
        "hint": "What to do next.",
        "evidence": "The lines of stdout that the verdict rests on.",
        "warnings": "Everything that puts a figure or the ending in doubt. "
        "Advisory ones begin with `interactive-hang:`, `background-task:` or `permission:`.",
        "text": "The main thread's text blocks, joined with newlines. Subagents' text is not in it.",
        "result": "The final text, as the agent's last result gives it; an empty echo is passed over.",
        "structured_output": "The value that was asked for by a JSON schema. In a run of `steno run --json-schema` it fits "
        "the schema, or is null; elsewhere it is what the agent gives.",
        "subtype": "The result's own `subtype`. It says `success` for many runs that failed.",
        "terminal_reason": "The agent's own word for why it stopped, in versions that give one.",
        "stop_reason": "Why the model's last answer ended.",
        "exit_code": "The process's exit code where it is known; negative when a signal ended it.",
        "signal": "The number of that signal, positive.",
        "complete": "A result was seen, and the last line was not cut.",
        "turns": "The agent's own count, added up over its results (1.0.x: the last one's). Not the number of requests.",
        "requests": "Requests to the model that were seen, each message once.",
        "started_at": "The time of the first event that has one.",
        "duration_ms": "The results' own durations added up; without a result, first to last time seen.",
        "duration_api_ms": "Time spent in requests, as the agent counts it; null where earlier runs of the session "
        "are in the figure.",
        "tokens": "What the run used.",
        "cache_hit_rate": "The part of the input that came from the cache: cache_read / (input + cache_write + cache_read).",
        "cost": "What the run cost.",
        "models": "Each model's share, by name.",
        "context": "How full the window is.",
        "tools": "Every tool call, in order.",
        "tool_counts": "Calls and errors by the tool's name.",
        "files": "Files that the run changed, as far as tool results (or a tape) tell.",
        "denials": "Calls that were refused, each once.",
        "subagents": "Subagents that were started.",
        "background": "Work that was sent to the background.",
        "retries": "Requests that failed and were tried again.",
        "limits": "The account's usage limit, as last told.",
        "lines": "What became of the input's lines.",
    },
    "TaskReport": {
        "task_id": "The task.",
        "attempts": "Its runs, in order; empty where nothing was started.",
    },
    "Attempt": {
        "run_id": "The run: `steno show RUN_ID` shows it.",
        "session_id": "Its session.",
        "verdict": "How it ended.",
        "tokens": "What it used.",
        "cost": "What it cost.",
        "turns": "Its turns.",
        "duration_ms": "How long it took.",
        "why": "What was decided after it, and why.",
        "agent": "The agent that made it: not the same for all where another one took over.",
    },
    "Tokens": {
        "input": "Tokens of input that were neither written to the cache nor read from it.",
        "cache_write": "Tokens of input that were written to the cache.",
        "cache_read": "Tokens of input that were read from the cache.",
        "output": "Tokens that the model wrote, its reasoning included.",
        "reasoning": "The part of `output` that is reasoning, where it is told.",
        "total": "input + cache_write + cache_read + output.",
    },
    "Cost": {
        "usd": "This run's own part, in dollars. Null is unknown; 0 is a run that cost nothing.",
        "source": "`reported` by the agent, `computed` from the price table, `local` (0: a model server of one's own), or "
        "`unknown`. `computed` also where only a part had to be computed.",
        "session_usd": "The session so far, where the agent counts over sessions.",
    },
    "ModelSummary": {
        "input": "As in Tokens, for this model alone.",
        "cache_write": "As in Tokens.",
        "cache_read": "As in Tokens.",
        "output": "As in Tokens.",
        "cost_usd": "This model's part of the cost.",
        "context_window": "The window that the agent reports for it; of a model server of one's own, what that tells.",
        "max_output": "The longest answer that the agent reports for it.",
    },
    "Context": {
        "used": "Input, cache writes and cache reads of the main thread's last request; after a compaction, its size afterwards.",
        "limit": "The window of the main thread's model.",
        "fraction": "used / limit.",
        "hp": "100 - 100 * fraction, never below 0.",
        "status": "`Healthy` above 50 hp, `Wounded` above 25, else `CRITICAL`.",
        "text": "The same for people, such as `97% HP [31k/1000k] — Healthy`; `HP unknown` where nothing is known.",
        "peak": "The fullest that the main thread's window was seen to be.",
        "source": "`measured`, `upper_bound` (only a sum over several requests is known) or `unknown`.",
        "limit_source": "`reported` by the agent or by the model server, `known` for this model, or `assumed` (200,000).",
        "compactions": "How often the conversation was replaced by a summary.",
    },
    "ToolCallSummary": {
        "id": "The call's id.",
        "name": "The tool's name, as the model used it.",
        "kind": "shell, file_read, file_write, file_edit, search, subagent, web, notebook, todo, mcp, or other.",
        "ok": "Whether it worked; null where no result was seen.",
        "error": "The first 500 characters of a failed call's answer.",
        "denied": "The call was refused.",
        "started_at": "When it was called, where the line or the tape tells the time.",
        "duration_ms": "From call to result, where both times are known.",
        "parent": "The call of the subagent that it belongs to; null in the main thread.",
        "background": "It was sent to the background.",
    },
    "ToolCallCounts": {
        "calls": "How often it was called.",
        "errors": "How often it failed or was refused.",
    },
    "ChangedFile": {
        "path": "Relative to `cwd` where the file lies inside it, else absolute.",
        "absolute": "The whole path, without `..` and `.`.",
        "change": "`created`, `modified` or `deleted`.",
        "inside": "Whether it lies inside `cwd`. Symbolic links are not followed.",
        "tools": "The ids of the calls that changed it.",
        "source": "`tool`: a tool's result says so; `filesystem`: it was seen on the disk while the agent ran; `git`: the state"
        " after the run differs from the one before.",
    },
    "DeniedCall": {
        "tool": "The tool that was refused.",
        "id": "The call's id.",
        "input": "What the call asked for.",
        "reason": "The agent's words for the refusal.",
        "allow_rule": "The narrowest rule for `--allowedTools` that fits the call.",
    },
    "Subagent": {
        "id": "The call that started it.",
        "type": "The kind of subagent.",
        "description": "What it was asked for, in a few words.",
        "tokens": "Its requests, as far as the stream shows them.",
        "cost_usd": "Computed, and only where every one of its requests told its final count.",
        "status": "`running`, `completed`, `failed`, `stopped` or `killed`; null where nothing was told.",
    },
    "BackgroundTask": {
        "id": "The call that started it.",
        "kind": "`shell` or `subagent`.",
        "description": "What it is, in a few words.",
        "status": "`running` until it was seen to end; then `completed`, `failed`, `stopped` or `killed`.",
    },
    "RequestRetry": {
        "attempt": "Its number, from 1.",
        "status": "The HTTP status; null for a connection that failed.",
        "error": "The agent's word for it.",
        "delay_ms": "How long the agent waited before it tried again.",
    },
    "RateLimitStatus": {
        "status": "The agent's word, such as `rejected`.",
        "resets_at": "When the limit resets, in seconds since 1970.",
        "kind": "Which limit, such as `five_hour`.",
        "utilization": "The part of it that is used.",
    },
    "LineCounts": {
        "read": "Lines of stdout, or elements of an array.",
        "blank": "Blank ones among them.",
        "malformed": "Lines that are not JSON; they are passed over.",
        "not_object": "Lines of JSON that hold no object.",
        "unknown": "Events of kinds that this version does not know; they are kept as they came.",
        "torn": "The last line was cut, or the tape does not end in order.",
    },
}

# -- reading the source --------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """One field of a struct, as it is written."""

    name: str
    type: str
    default: str | None


class Shape(NamedTuple):
    """One class, as it is written."""

    name: str
    base: str
    text: str
    fields: list[Field]
    methods: list[ast.FunctionDef]


def shapes(module: object) -> dict[str, Shape]:
    """The classes of a module by name, in the order of its text."""
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text("utf-8"))
    return {node.name: _shape(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _shape(node: ast.ClassDef) -> Shape:
    fields = []
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            default = None if part.value is None else ast.unparse(part.value)
            fields.append(Field(part.target.id, ast.unparse(part.annotation), default))
    methods = [
        part
        for part in node.body
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
    ]
    base = ast.unparse(node.bases[0]) if node.bases else ""
    return Shape(node.name, base, told(ast.get_docstring(node)), fields, methods)


def told(text: str | None) -> str:
    """A docstring without the numbers of the rules that it holds to, which tell a reader nothing."""
    return re.sub(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)", "", text or "")


def typed(annotation: str, known: dict[str, str]) -> str:
    """A type for a table: null in place of None, and a link to each struct that the page tells of."""
    optional = annotation.endswith(" | None")
    text = f"`{annotation.removesuffix(' | None')}`".replace(" | ", "` or `")
    for name, target in known.items():
        if re.search(rf"\b{name}\b", annotation):
            text = f"[{text}]({target})"
    return text + (" or null" if optional else "")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    ]


def page(title: str, *parts: str | list[str]) -> str:
    """A page of blocks with a blank line between them."""
    blocks = [part if isinstance(part, str) else "\n".join(part) for part in parts]
    return "\n\n".join([NOTE, f"# {title}", *(block for block in blocks if block)]) + "\n"


# -- the report ----------------------------------------------------------------------------------------------------


def report_page() -> str:
    """Every field of the report and of the structs inside it."""
    found = _parts({name: shape for name, shape in shapes(report).items() if shape.fields})
    _agree(found)
    links = {name: f"#{name.lower()}" for name in found}
    parts: list[str | list[str]] = [
        "What `steno show --json` prints, one object to a line, and what `steno.read` returns. `steno run --json` and "
        "`steno.run` give a [TaskReport](#taskreport): the same names, and the task's own. A figure that is not known is "
        "null (`None` in Python), never 0. Times are `datetime` values in Python and ISO 8601 text in JSON. Every name is "
        "always there.",
        f"Schema: `{report.SCHEMA}`.",
    ]
    first = ["Report", "TaskReport", "Attempt"]
    for name in [*first, *(name for name in found if name not in first)]:
        shape = found[name]
        rows = [
            [f"`{one.name}`", typed(_written(one.type), links), MEANINGS[name][one.name]]
            for one in shape.fields
        ]
        parts += [f"## {name}", shape.text, table(["field", "type", "meaning"], rows)]
    return page("The report", *parts)


def _written(kind: str) -> str:
    """A type as it is in JSON, where a word is text."""
    return "str" if kind == "Verdict" else kind


def _parts(found: dict[str, Shape]) -> dict[str, Shape]:
    """The reports, and what stands in one of their fields, however deep."""
    wanted = more = {"Report", "TaskReport"}
    while more:
        types = " ".join(field.type for name in wanted for field in found[name].fields)
        more = {name for name in found if re.search(rf"\b{name}\b", types)} - wanted
        wanted |= more
    return {name: shape for name, shape in found.items() if name in wanted}


def _agree(found: dict[str, Shape]) -> None:
    """Stop unless every field has a meaning and every meaning its field."""
    fields = {f"{name}.{field.name}" for name, shape in found.items() for field in shape.fields}
    meant = {
        f"{name}.{field}"
        for name, table_ in MEANINGS.items()
        for field, text in table_.items()
        if text
    }
    if fields != meant:
        raise SystemExit(
            f"report.md: no meaning for {sorted(fields - meant)}; no field for {sorted(meant - fields)}"
        )


# -- events --------------------------------------------------------------------------------------------------------


def events_page() -> str:
    """Every event with when it is emitted and what it carries."""
    found = shapes(event)
    shared = found.pop("Event")
    del found["EventHead"]  # for readers only
    values = {name: shape for name, shape in found.items() if shape.base == "Struct"}
    links = {name: f"#{name.lower()}" for name in values}
    parts: list[str | list[str]] = [
        "What `steno show --events` prints, one object to a line, and what `steno.events` yields. In JSON the field `event` "
        "names the kind; fields of the kind's own that have their default value are left out; `Raw` is JSON as the agent "
        "wrote it, `bytes` is base64 text, and a time is ISO 8601 text.",
        "In Python the kinds stand in `steno.event`, and a `Raw` is bytes that nobody has decoded yet, since most are never "
        "looked at. `steno.plain` gives the value:",
        RAW,
        "## Every event",
        shared.text,
        _fields(shared, links),
    ]
    for name, shape in found.items():
        if name not in values:
            tag = getattr(event, name).__struct_config__.tag
            parts += [f"## {name}", f"`{tag}`. {shape.text}", _fields(shape, links)]
    for name, shape in values.items():
        parts += [f"## {name}", f"A value inside an event. {shape.text}", _fields(shape, links)]
    return page("Events", *parts)


RAW = """```python
import steno
from steno.event import ToolCall

for event in steno.events("tests/recordings/claude/2.1.325/permission_denied"):
    if isinstance(event, ToolCall):
        print(event.name, steno.plain(event.input))
```"""


def _fields(shape: Shape, links: dict[str, str]) -> list[str]:
    written = {
        one.name: one.encode_name for one in msgspec.structs.fields(getattr(event, shape.name))
    }
    rows = []
    for one in shape.fields:
        name = (
            f"`{one.name}`"
            if written[one.name] == one.name
            else f"`{one.name}` (JSON: `{written[one.name]}`)"
        )
        rows.append(
            [
                name,
                typed(one.type, links),
                "" if one.default is None else f"`{_default(one.default)}`",
            ]
        )
    return table(["field", "type", "default"], rows) if rows else []


def _default(text: str) -> str:
    return "null" if text in ("None", "NO_JSON") else text


# -- verdicts ------------------------------------------------------------------------------------------------------

SESSION = "SESSION"


def _result(**fields: object) -> ev.Result:
    return ev.Result(9, SESSION, None, None, **fields)  # type: ignore[arg-type]  # the names are those of Result


def _facts(code: int | None = None, **fields: object) -> Facts:
    """The facts of a run that asked the model once."""
    about = Report(session_id=SESSION, requests=1, turns=2, exit_code=code)
    return Facts(report=about, **fields)  # type: ignore[arg-type]  # the names are those of Facts


def _stopped(why: str) -> Facts:
    return _facts(stop=ev.StopRequested(0, None, None, None, why))


def _failed(**fields: object) -> Facts:
    return _facts(result=_result(subtype="success", is_error=True, **fields))


def _waiting() -> Facts:
    facts = _facts(result=_result(subtype="success"))
    facts.report.background.append(BackgroundTask("CALL", "shell", "tests"))
    return facts


def samples() -> dict[str, list[Facts]]:
    """For every word, facts that lead to it: one for each rule that can give it."""
    done = _result(subtype="success", text="Done.")
    refusal = (DeniedCall("Bash", "CALL", allow_rule="Bash(ls)"), 5)
    at_start = _facts(
        result=_result(is_error=True, subtype="error_during_execution", startup_failure="config")
    )
    answered = _facts(result=done)
    answered.report.result = "Done."
    return {
        "success": [answered],
        "max_turns": [_facts(result=_result(subtype="error_max_turns"))],
        "max_budget": [
            _facts(result=_result(subtype="error_max_budget_usd")),
            _stopped("max_budget"),
        ],
        "rate_limit": [_failed(api_error="usage_limit_reached")],
        "auth": [_failed(api_status=401)],
        "api": [_failed(api_status=500)],
        "network": [_failed(text="Connection error.")],
        "invalid_request": [_failed(api_status=404)],
        "context_full": [_failed(terminal_reason="prompt_too_long")],
        "refused": [_failed(stop_reason="refusal")],
        "permission": [_facts(result=done, refused=[refusal])],
        "interactive": [_facts(result=done, final_text="Which one?")],
        "background_task": [_waiting()],
        "empty": [_facts(result=_result(subtype="success"))],
        "no_result": [
            _facts(),
            _facts(
                result=done, checked=ev.SchemaChecked(0, None, None, None, wrong=("$.age: ...",))
            ),
        ],
        "stalled": [_stopped("stalled")],
        "timeout": [_stopped("timeout")],
        "interrupted": [
            _stopped("interrupted"),
            _facts(-2),
            _facts(result=_result(terminal_reason="aborted_streaming")),
        ],
        "killed": [_stopped("killed"), _facts(-9)],
        "subprocess": [at_start, _facts(1, stderr=["error: unknown option"])],
        "not_found": [_facts(exited=ev.Exited(0, None, None, None, None))],
    }


def verdicts_page() -> str:
    """Every word, the rules that can give it, and their hints."""
    given = samples()
    if list(given) != list(report.VERDICTS):
        raise SystemExit(
            f"verdicts.md: the samples are for {list(given)}, the words are {list(report.VERDICTS)}"
        )
    order = ", ".join(f"`{rule.__name__}`" for rule in RULES)
    rows = [
        [f"[`{word}`](#{word})", VERDICT_DISPLAY[word][1], _category(word)]
        for word in report.VERDICTS
    ]
    parts: list[str | list[str]] = [
        "A verdict is one word, with the lines that prove it (`evidence`), the error text where there is one, and a hint. "
        "Every run gets exactly one.",
        table(["word", "meaning", "error_category"], rows),
        "## Order of the rules",
        f"The first rule that speaks wins: {order}. If none does, the word is `success`.",
        "`advice` is `asked`, then `waiting`; `--no-advice` switches both off.",
    ]
    for word, cases in given.items():
        parts += [f"## {word}", *_told(word, cases)]
    return page("Verdicts", *parts)


def _category(word: str) -> str:
    return f"`{ERROR_CATEGORIES[word]}`" if word in ERROR_CATEGORIES else "null"


def _told(word: str, cases: list[Facts]) -> Iterator[str]:
    """What there is to say of a word: its meaning, its rules, its hints."""
    yield f"{VERDICT_DISPLAY[word][1].capitalize()}."
    hints = []
    for facts in cases:
        name, text, hint = _judged(word, facts)
        if name:
            yield f"Rule `{name}`: {text}"
        hints += [hint] if hint and hint not in hints else []
    if hints:
        yield "Hint: " + "; or: ".join(f"“{hint}”" for hint in hints) + "."


def _judged(word: str, facts: Facts) -> tuple[str, str, str | None]:
    """The rule that gives the word for these facts, its docstring and its hint."""
    rules = [
        part
        for rule in RULES
        for part in (
            (verdict.detect_open_question, verdict.detect_background_work)
            if rule is verdict.detect_advisories
            else (rule,)
        )
    ]
    for rule in rules:
        found = rule(facts)
        if found is not None:
            if found.verdict != word:
                raise SystemExit(f"verdicts.md: the sample for {word} is judged {found.verdict}")
            return rule.__name__, " ".join(told(rule.__doc__).split()), found.hint
    if word != "success":
        raise SystemExit(f"verdicts.md: no rule speaks for the sample of {word}")
    return "", "", None


# -- settings ------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """Every setting with its option, its variable, its default and its meaning."""
    parts: list[str | list[str]] = [
        "What `steno run` may be told by an option, by a variable of the environment, or in `steno.toml`: the project's (the "
        "nearest from the folder upwards, to the root of its repository or to the home folder) and the user's (in the "
        "configuration directory, on Linux `~/.config/steno/steno.toml`). An option beats a variable, a variable beats the "
        "project's file, and that beats the user's. `steno config` shows each value and where it comes from.",
        "Times are seconds, or text such as `10m` and `1h30m`; `off` is for ever. Parts are `0.8` or `80%`, amounts `5` or `$5`, "
        "large numbers may be `200k` or `1.5M`. Of a list, a file's or a variable's words are parted by commas. `env` is "
        "gathered from all of them; everything else is taken from the first that has it. In a file, a relative path is "
        "relative to the file. An unknown name is an error.",
        f"A table `[agents.NAME]` sets {_all_of(AGENT_SETTINGS)} for one agent; what stands there comes before what the same file says of "
        "every agent. A table `[models.NAME]` names the `small`, `medium` and `large` model of an agent: [agents](agents.md) has "
        "those that are known.",
    ]
    for group in dict.fromkeys(setting.group for setting in SETTINGS):
        rows = [_setting(setting) for setting in SETTINGS if setting.group == group]
        parts += [
            f"## {group[:1].upper()}{group[1:]}",
            table(["name", "option", "variable", "default", "meaning"], rows),
        ]
    return page("Settings", *parts)


def _all_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


def _setting(setting: Setting) -> list[str]:
    default = setting.default
    shown = (
        ""
        if default in (None, (), {})
        else ", ".join(default)
        if isinstance(default, tuple)
        else f"{default}".lower().removesuffix(".0")
    )
    name = (
        f"[agents.NAME] {setting.name}"
        if setting.is_per_agent
        else setting.name
        if setting.is_file_setting
        else ""
    )
    variable = f"`{setting.variable}`" if setting.variable else ""
    return [
        f"`{name}`" if name else "(in no file)",
        f"`{setting.option} {setting.metavar}`".replace(" `", "`"),
        variable,
        shown,
        setting.help_text,
    ]


# -- agents --------------------------------------------------------------------------------------------------------

WHO = {"agent": "agent", "steno": "steno", "no": ""}


def agents_page() -> str:
    """Who deals with each option of a run, and each agent's models and permission modes."""
    head = [f"`{name}`" for name in AGENTS]
    rows = [
        [
            f"`--{option.rstrip('_').replace('_', '-')}`",
            *(WHO[option_support(agent, option)] for agent in AGENTS.values()),
        ]
        for option in OPTION_FIELDS
    ]
    sized = [
        [f"`{name}`", *([f"`{model}`" for model in agent.sizes] or [""] * 3)]
        for name, agent in AGENTS.items()
    ]
    modes = [
        [f"`{name}`", ", ".join(f"`{mode}`" for mode in agent.launch.permission_modes) or "its own"]
        for name, agent in AGENTS.items()
    ]
    return page(
        "Agents",
        "One set of options holds for all agents. What an agent cannot do is said before it starts: an option that nobody would "
        "heed is refused with one line and exit code 2, and nothing is started. Where a variable or a file asks it of all "
        "agents, the run says that it is left out. `steno agents` shows the same table for the agents of this machine.",
        "## Options",
        "`agent`: it takes the option itself. `steno`: steno holds it. Empty: a run with it is refused.",
        table(["option", *head], rows),
        "steno holds `--max-cost` by what the agent tells of its requests; of `codex`, `copilot` and `gemini` that is known when "
        "a run ends, so a budget then stops the next attempt and not the run. It says so before the start, and while it runs "
        "where a request has no known price. It holds `--json-schema` by putting the schema into the prompt and looking at "
        "the answer, as it does with every agent. It holds `--fallback-model` with `--on-limit fallback`. Clocks, "
        "`--max-tokens`, `--attempts`, `--env`, `--no-api-key` and all other options are steno's with every agent.",
        "## Models",
        "What `--model small`, `medium` and `large` mean. Others are named in `steno.toml`, below `[models.NAME]`; `steno "
        "config` shows what stands, and where it comes from.",
        table(["agent", *MODEL_SIZES], sized),
        "## Permission modes",
        "Words for `--permission-mode`: those of all agents (`default`, `plan`, `acceptEdits`, `dontAsk`, `bypassPermissions`) "
        "as far as it has something of the kind, and its own.",
        table(["agent", "modes"], modes),
    )


# -- the command line ----------------------------------------------------------------------------------------------


def cli_page() -> str:
    """The help texts of every command, and what the exit codes mean."""
    parts: list[str | list[str]] = [_help([])]
    for name, what in cli.COMMANDS.items():
        parts += [f"## steno {name}", f"{what[:1].upper()}{what[1:]}.", _help([name])]
    codes = [
        [
            "0",
            "it did what was asked. `steno show` and every question to the ledger: however the runs ended that it tells of",
        ],
        ["1", "`steno doctor`: something is wrong, which is more than a note"],
        [
            "1",
            "`steno sync`, `steno run --sync`, `steno watch --strict`: a file did not arrive everywhere",
        ],
        ["1", "`steno on`: a command failed, or was not run"],
        [
            str(cli.EXIT_USAGE_ERROR),
            "wrong use, or a source that could not be read; what could be read was shown, or taken in",
        ],
        ["3", "`steno budget check` and `steno budget list --check`: a budget is exceeded"],
        [str(cli.EXIT_INTERNAL_ERROR), "a fault of steno itself: `--debug` shows where"],
        [str(cli.EXIT_WRITE_FAILED), "the output, or the record of a run, could not be written"],
        [str(cli.EXIT_INTERRUPTED), "interrupted from the keyboard"],
        [str(cli.EXIT_PIPE_CLOSED), "whoever read the output went away first"],
    ]
    settings = [
        [
            "`COLUMNS`",
            "the width of the page; without it the terminal's, or 80 where there is none",
        ],
        ["`NO_COLOR`", "not empty: no colours"],
        ["`FORCE_COLOR`", "not empty and not 0: colours also where stdout is no terminal"],
        ["`STENO_LEDGER`", "the ledger: a path or `postgresql://...`; `--ledger` comes before it"],
        [
            "`TZ`",
            "the time zone of days, weeks and months, as for other programs; `--timezone` comes before it",
        ],
        ["`STENO_DEBUG`", "not empty and not 0: the same as `--debug`"],
        ["`STENO_...`", "every [setting](settings.md) of a run"],
    ]
    codes_of = [
        [
            f"{code}",
            ", ".join(f"`{word}`" for word in report.VERDICTS if report.EXIT_CODES[word] == code),
        ]
        for code in EXITS
    ]
    parts += ["## Exit codes", table(["code", "meaning"], codes)]
    parts.append(
        "`steno run` exits with the code of the verdict (`--exit-from verdict`, the default), or with `--exit-from agent` with "
        "the agent's own (128 and the number of the signal where one ended it). Whoever interrupts it gets 130, whatever the "
        "last attempt's verdict was. `steno show` and `steno watch` exit with the verdict's code if they are given "
        "`--exit-from verdict`; of several sources `show` takes the highest, and 2 comes before all others. `steno replay` "
        "exits as the recorded agent did: with its code, or by its signal."
    )
    parts += [
        table(["code of `steno run`", "verdict"], codes_of),
        "## Environment",
        table(["variable", "effect"], settings),
    ]
    return page("The command line", *parts)


def _help(words: list[str]) -> str:
    said, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(said):
            cli.main([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.__setitem__("COLUMNS", before)
    return f"```text\n{said.getvalue().rstrip()}\n```"


# -- the ledger ----------------------------------------------------------------------------------------------------


def ledger_page() -> str:
    """Every table and column, for `steno sql`."""
    found: list[str | list[str]] = [
        "The tables that [`steno sql`](cli.md#steno-sql) can ask, for reading only: [how to ask](../howto/ask-the-ledger.md). "
        "Types are those of SQLite; PostgreSQL has BIGINT and BYTEA in place of INTEGER and BLOB.",
        "Times (`at`, `..._at`) are milliseconds since 1970 (UTC), `hour` is hours since 1970, `..._ms` are milliseconds. Money "
        "(`..._nano`) is nano-dollars: divide by 1e9. What is yes or no is 1 or 0. What is not known is NULL. The ledger is "
        "made anew from the files whenever that is asked for (`steno rebuild`), so nothing should be written into it.",
    ]
    for name, about, rows in ledger_tables.parts():
        found += [f"## {name}", about, table(["column", "type", "meaning"], rows)]
    return page("The ledger's tables", *found)


# -- the library ---------------------------------------------------------------------------------------------------

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ELSEWHERE = {
    "Report": "Its fields: [report.md](report.md).",
    "Event": "The kinds: [events.md](events.md).",
    "Live": "[stream](#stream) makes it.",
    "Ledger": "`scope`, in each question, is any of the keywords of [Scope](#scope).",
}
WORDS = (
    "One of the words of [verdicts](verdicts.md), as a type: a type checker tells a word that there is none of, and those that "
    "are left out."
)
ANSWERED = (
    (lists, ("Run", "Session", "Note")),
    (answer_sums, ("Usage", "Line", "Sums", "Waste", "Peak", "ToolSums")),
    (finds, ("Hit",)),
    (pull, ("Pulled",)),
)
ANSWERS = (
    "Each is a name of `steno`, too; `as_json()` gives a run, a session or a hit as plain values. "
    "Times are milliseconds since 1970, money in `nano` is billionths of a dollar, and what is not known is `None`. `Tokens`, "
    "`Cost` and `Context` are those of a [report](report.md). What a run's or a session's fields mean: the columns of "
    "[the ledger's tables](ledger.md)."
)
CALLS = {  # keywords that are no settings
    "cwd": "the folder to work in (default: the current one)",
    "session_id": "the id of the new session, a UUID",
    "resume": "go on with a session: its id, or the beginning of a run's",
    "fork": "with `resume`: in a copy of it",
    "continue_": "go on with the last session of the folder; `continue` is a word of Python",
    "worktree": "work in a git worktree of its own: its name, or True",
    "tape": "what the agent `replay` plays: a tape, or the folder of a recording",
    "speed": "how many times as fast it plays; 0: without waiting",
    "args": "the agent's own arguments, as they are: what follows `--` on the command line",
}
SCOPE = {
    "last": "so long before now: 24h, 7d, 2w, 3m; or a timedelta",
    "since": "from then on: a day (2026-11-01), a time, today, yesterday, or how long ago (3d); or a date or datetime",
    "until": "up to then; a day is meant to its end",
    "project": "a folder, or the name of one",
    "model": "its name, or letters in it",
    "agent": "its name",
}


def library_page() -> str:
    """Every public name with its signature and docstring."""
    return page(
        "The library",
        _indented(steno.__doc__ or ""),
        *_names(steno),
        "## What the ledger answers",
        ANSWERS,
        *_answers(),
    )


def _answers() -> Iterator[str]:
    """The values that questions to the ledger give."""
    for shape in (shapes(home)[name] for home, names in ANSWERED for name in names):
        yield f"### {shape.name}"
        yield shape.text
        fields = [f"{one.name}: {one.type}" for one in shape.fields]
        derived = [(one, one.returns) for one in shape.methods if _is_property(one)]
        fields += [
            f"{one.name}: {ast.unparse(kind)}  # {told(ast.get_docstring(one))}"
            for one, kind in derived
            if kind is not None
        ]
        yield "\n".join(["```text", *fields, "```"])


def testing_page() -> str:
    """The same of the checks for agents."""
    return page(
        "The contract of an agent",
        _indented(testing.__doc__ or ""),
        *_names(testing),
        "## The checks",
        _checks(),
    )


def _names(module: ModuleType) -> Iterator[str]:
    where = module.__name__
    for name in sorted(module.__all__, key=lambda name: (name[0].isupper(), name)):
        if name in {answered for _, several in ANSWERED for answered in several}:
            continue  # told at the end
        if get_origin(getattr(module, name)) is Literal:
            yield f"## {name}"
            yield WORDS
            continue
        home = sys.modules[getattr(module, name).__module__]
        tree = ast.parse(Path(str(home.__file__)).read_text("utf-8"))
        node = next(
            part for part in tree.body if isinstance(part, DEFINITIONS) and part.name == name
        )
        yield f"## {name}"
        yield from (
            _of_class(node, where)
            if isinstance(node, ast.ClassDef)
            else _of_function(node, f"{where}.{name}")
        )


def _checks() -> list[str]:
    told_ = {check.__name__: told(check.__doc__) for check in readings.CHECKS}
    return table(
        ["check", "what must hold of every recording"],
        [[f"`{name}`", text] for name, text in told_.items()],
    )


def _of_class(node: ast.ClassDef, where: str) -> Iterator[str]:
    shape = _shape(node)
    inits = [
        part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"
    ]
    made = [] if node.name == "Live" else inits
    yield f"```text\nclass {where}.{node.name}({_arguments(made[0]) if made else '...'})\n```"
    yield shape.text
    yield f"A kind of `{shape.base}`." if shape.base not in ("", "Struct", "TypedDict") else ""
    yield ELSEWHERE.get(node.name, "")
    if shape.base == "TypedDict":
        yield "\n".join(
            table(
                ["keyword", "type", "meaning"], [_keyword(one, node.name) for one in shape.fields]
            )
        )
    for method in shape.methods:
        yield from _of_function(method, f"{node.name}.{method.name}")


def _keyword(one: Field, of: str) -> list[str]:
    kind = typed(re.sub(r"\bWhere\b", "str or PathLike", one.type), {}).replace("null", "`None`")
    return [
        f"`{one.name}`",
        kind,
        SCOPE[one.name]
        if of == "Scope"
        else CALLS.get(one.name) or SETTINGS_BY_NAME[one.name].what,
    ]


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[str]:
    returns = (
        f" -> {ast.unparse(node.returns)}".replace("ev.", "").replace("'", "")
        if node.returns is not None
        else ""
    )
    if _is_property(node):
        given, returns = "", returns.replace(" ->", ":")
    else:
        given = f"({_arguments(node)})"
    yield f"```text\n{'async ' * isinstance(node, ast.AsyncFunctionDef)}{name}{given}{returns}\n```"
    yield told(ast.get_docstring(node))


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return [ast.unparse(one) for one in node.decorator_list] == ["property"]


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    words = re.sub(r"^self(, )?", "", ast.unparse(node.args)).replace("ev.", "")
    return re.sub(r"(: [^=,]+)=", r"\1 = ", words)


def _indented(text: str) -> str:
    """A docstring with its example in a fence."""
    return re.sub(
        r"\n\n((?: {4}.*\n|\n)+)\n",
        lambda found: f"\n\n```text\n{_outdented(found[1])}\n```\n\n",
        text,
    ).strip()


def _outdented(text: str) -> str:
    return "\n".join(line[4:] for line in text.rstrip().split("\n"))


# -- writing or checking ---------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    return {
        "report.md": report_page(),
        "events.md": events_page(),
        "verdicts.md": verdicts_page(),
        "settings.md": settings_page(),
        "agents.md": agents_page(),
        "cli.md": cli_page(),
        "ledger.md": ledger_page(),
        "library.md": library_page(),
        "testing.md": testing_page(),
    }


def main(words: list[str]) -> int:
    """Write the pages, or with --check compare them."""
    check = "--check" in words
    folder = next((Path(word) for word in words if word != "--check"), HERE)
    differs = 0
    for name, text in pages().items():
        path = folder / name
        if not check:
            path.write_text(text, "utf-8")
        elif not path.is_file() or path.read_text("utf-8") != text:
            sys.stderr.write(
                f"{path}: differs from the program; run: python docs/reference/generate.py\n"
            )
            differs = 1
    return differs


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
