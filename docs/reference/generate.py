"""Generates the reference pages from the source, or checks that they are up to date.

    python docs/reference/generate.py [FOLDER]            write the pages (default: this folder)
    python docs/reference/generate.py --check [FOLDER]    exit 1 and list the pages that differ

Names, types, docstrings, hints and help texts come from the source; `meanings.py` describes the
fields that have no docstring. A field without a description is an error, and vice versa.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ledger_page as ledger_tables
import msgspec
from library_page import library_page, testing_page
from meanings import REPORT_FIELDS
from source import Shape, docstring, page, shapes, table, typed

from steno import cli, event, report
from steno import event as ev
from steno.agents import AGENTS
from steno.agents.base import OPTION_FIELDS, option_support
from steno.analysis import verdict
from steno.analysis.verdict import ERROR_CATEGORIES, RULES, Facts
from steno.config import AGENT_SETTINGS, MODEL_SIZES, SETTINGS, Setting
from steno.report import BackgroundTask, DeniedCall, Report
from steno.views.formatting import VERDICT_DISPLAY

HERE = Path(__file__).parent
HELP_COLUMNS = "100"
EXITS = sorted(set(report.EXIT_CODES.values()))

# -- the report ---------------------------------------------------------------------------------


def report_page() -> str:
    structs = _report_structs(
        {name: shape for name, shape in shapes(report).items() if shape.fields}
    )
    _check_descriptions(structs)
    links = {name: f"#{name.lower()}" for name in structs}
    parts: list[str | list[str]] = [
        "Printed by `steno show --json` (one object per line) and returned by `steno.read`. "
        "`steno run --json` and `steno.run` give a [TaskReport](#taskreport), which adds the "
        "fields of the task. Unknown values are null (`None` in Python), never 0. Times are "
        "`datetime` values in Python and ISO 8601 text in JSON. Every field is always present.",
        f"Schema: `{report.SCHEMA}`.",
    ]
    first = ["Report", "TaskReport", "Attempt"]
    for name in [*first, *(name for name in structs if name not in first)]:
        shape = structs[name]
        rows = [
            [
                f"`{field.name}`",
                typed(_json_type(field.type), links),
                REPORT_FIELDS[name][field.name],
            ]
            for field in shape.fields
        ]
        parts += [f"## {name}", shape.text, table(["field", "type", "meaning"], rows)]
    return page("Report", *parts)


def _json_type(annotation: str) -> str:
    return "str" if annotation == "Verdict" else annotation


def _report_structs(structs: dict[str, Shape]) -> dict[str, Shape]:
    """The reports and the structs nested in them."""
    wanted = more = {"Report", "TaskReport"}
    while more:
        types = " ".join(field.type for name in wanted for field in structs[name].fields)
        more = {name for name in structs if re.search(rf"\b{name}\b", types)} - wanted
        wanted |= more
    return {name: shape for name, shape in structs.items() if name in wanted}


def _check_descriptions(structs: dict[str, Shape]) -> None:
    """Exit unless fields and descriptions match."""
    fields = {f"{name}.{field.name}" for name, shape in structs.items() for field in shape.fields}
    described = {f"{name}.{field}" for name, texts in REPORT_FIELDS.items() for field in texts}
    if fields != described:
        missing = sorted(fields - described)
        unused = sorted(described - fields)
        raise SystemExit(f"report.md: no description for {missing}; no field for {unused}")


# -- events -------------------------------------------------------------------------------------


def events_page() -> str:
    structs = shapes(event)
    shared = structs.pop("Event")
    del structs["EventHead"]  # for readers only
    values = {name: shape for name, shape in structs.items() if shape.base == "Struct"}
    links = {name: f"#{name.lower()}" for name in values}
    parts: list[str | list[str]] = [
        "Printed by `steno show --events` (one object per line) and yielded by `steno.events`. In "
        "JSON, `event` is the kind, fields with their default value are omitted, `Raw` is the "
        "agent's own JSON, `bytes` are base64 text, and times are ISO 8601 text.",
        "In Python the classes are in `steno.event`, and a `Raw` is undecoded bytes. "
        "`steno.decode_raw` decodes it:",
        RAW,
        "## Common fields",
        shared.text,
        _fields(shared, links),
    ]
    for name, shape in structs.items():
        if name not in values:
            tag = getattr(event, name).__struct_config__.tag
            parts += [f"## {name}", f"`{tag}`. {shape.text}", _fields(shape, links)]
    for name, shape in values.items():
        parts += [f"## {name}", f"Nested value. {shape.text}", _fields(shape, links)]
    return page("Events", *parts)


RAW = """```python
import steno
from steno.event import ToolCall

for event in steno.events("tests/recordings/claude/2.1.325/permission_denied"):
    if isinstance(event, ToolCall):
        print(event.name, steno.decode_raw(event.input))
```"""


def _fields(shape: Shape, links: dict[str, str]) -> list[str]:
    written = {
        field.name: field.encode_name
        for field in msgspec.structs.fields(getattr(event, shape.name))
    }
    rows = []
    for field in shape.fields:
        name = (
            f"`{field.name}`"
            if written[field.name] == field.name
            else f"`{field.name}` (JSON: `{written[field.name]}`)"
        )
        rows.append(
            [
                name,
                typed(field.type, links),
                "" if field.default is None else f"`{_default(field.default)}`",
            ]
        )
    return table(["field", "type", "default"], rows) if rows else []


def _default(text: str) -> str:
    return "null" if text in ("None", "NO_JSON") else text


# -- verdicts -----------------------------------------------------------------------------------

SESSION = "SESSION"


def _result(**fields: object) -> ev.Result:
    # The keywords are those of Result.
    return ev.Result(9, SESSION, None, None, **fields)  # type: ignore[arg-type]


def _facts(code: int | None = None, **fields: object) -> Facts:
    """The facts of a run with one request."""
    run_report = Report(session_id=SESSION, requests=1, turns=2, exit_code=code)
    return Facts(report=run_report, **fields)  # type: ignore[arg-type]  # keywords of Facts


def _stopped(why: str) -> Facts:
    return _facts(stop=ev.StopRequested(0, None, None, None, why))


def _failed(**fields: object) -> Facts:
    return _facts(result=_result(subtype="success", is_error=True, **fields))


def _waiting() -> Facts:
    facts = _facts(result=_result(subtype="success"))
    facts.report.background.append(BackgroundTask("CALL", "shell", "tests"))
    return facts


def samples() -> dict[str, list[Facts]]:
    """Facts for each verdict: one sample per rule that can give it."""
    done = _result(subtype="success", text="Done.")
    denial = (DeniedCall("Bash", "CALL", allow_rule="Bash(ls)"), 5)
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
        "permission": [_facts(result=done, unresolved_denials=[denial])],
        "interactive": [_facts(result=done, final_text="Which one?")],
        "background_task": [_waiting()],
        "empty": [_facts(result=_result(subtype="success"))],
        "no_result": [
            _facts(),
            _facts(
                result=done,
                schema_check=ev.SchemaChecked(0, None, None, None, wrong=("$.age: ...",)),
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
    cases = samples()
    if list(cases) != list(report.VERDICTS):
        expected = list(report.VERDICTS)
        raise SystemExit(f"verdicts.md: samples are for {list(cases)}, verdicts are {expected}")
    order = ", ".join(f"`{rule.__name__}`" for rule in RULES)
    rows = [
        [f"[`{word}`](#{word})", VERDICT_DISPLAY[word][1], _category(word)]
        for word in report.VERDICTS
    ]
    parts: list[str | list[str]] = [
        "Every run has exactly one verdict, with the lines that prove it (`evidence`), an error "
        "message if there is one, and a hint.",
        table(["verdict", "meaning", "error_category"], rows),
        "## Order of the rules",
        f"The first matching rule decides: {order}. If none matches, the verdict is `success`.",
        "`detect_advisories` is `detect_open_question`, then `detect_background_work`; "
        "`--no-advice` disables both.",
    ]
    for word, facts in cases.items():
        parts += [f"## {word}", *_verdict_section(word, facts)]
    return page("Verdicts", *parts)


def _category(word: str) -> str:
    return f"`{ERROR_CATEGORIES[word]}`" if word in ERROR_CATEGORIES else "null"


def _verdict_section(word: str, cases: list[Facts]) -> Iterator[str]:
    """Meaning, rules and hints of a verdict."""
    meaning = VERDICT_DISPLAY[word][1]
    yield f"{meaning[:1].upper()}{meaning[1:]}."
    hints = []
    for facts in cases:
        name, text, hint = _matching_rule(word, facts)
        if name:
            yield f"Rule `{name}`: {text}"
        hints += [hint] if hint and hint not in hints else []
    if hints:
        yield "Hint: " + "; or: ".join(f"“{hint}”" for hint in hints) + "."


def _matching_rule(word: str, facts: Facts) -> tuple[str, str, str | None]:
    """Name and docstring of the rule that gives this verdict, and its hint."""
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
        judgement = rule(facts)
        if judgement is not None:
            if judgement.verdict != word:
                raise SystemExit(f"verdicts.md: the sample for {word} gives {judgement.verdict}")
            return rule.__name__, " ".join(docstring(rule.__doc__).split()), judgement.hint
    if word != "success":
        raise SystemExit(f"verdicts.md: no rule matches the sample for {word}")
    return "", "", None


# -- settings -----------------------------------------------------------------------------------


def settings_page() -> str:
    agent_settings = _join_names(AGENT_SETTINGS)
    parts: list[str | list[str]] = [
        "Settings of `steno run`. Precedence: command-line option, environment variable, project "
        "`steno.toml` (the nearest one from the working directory up to the root of its repository "
        "or the home folder), user `steno.toml` (on Linux `~/.config/steno/steno.toml`). "
        "`steno config` shows each value and its source.",
        "Times are seconds or text such as `10m` and `1h30m`; `off` means no limit. Fractions are "
        "`0.8` or `80%`, amounts `5` or `$5`, large numbers `200k` or `1.5M`. List items are "
        "separated by commas in files and variables. `env` is merged from all sources; every other "
        "setting is taken from the first source that has it. Relative paths in a file are relative "
        "to that file. Unknown names are errors.",
        f"A table `[agents.NAME]` sets {agent_settings} for one agent and takes precedence over "
        "the general settings of the same file. A table `[models.NAME]` names the `small`, "
        "`medium` and `large` model of an agent; [agents](agents.md) lists the built-in ones.",
    ]
    for group in dict.fromkeys(setting.group for setting in SETTINGS):
        rows = [_setting(setting) for setting in SETTINGS if setting.group == group]
        parts += [
            f"## {group[:1].upper()}{group[1:]}",
            table(["name", "option", "variable", "default", "meaning"], rows),
        ]
    return page("Settings", *parts)


def _join_names(names: tuple[str, ...]) -> str:
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


def _setting(setting: Setting) -> list[str]:
    return [
        _file_name(setting),
        f"`{setting.option} {setting.metavar}`".replace(" `", "`"),
        f"`{setting.variable}`" if setting.variable else "",
        _setting_default(setting.default),
        setting.help_text,
    ]


def _file_name(setting: Setting) -> str:
    if setting.is_per_agent:
        return f"`[agents.NAME] {setting.name}`"
    return f"`{setting.name}`" if setting.is_file_setting else "(not in files)"


def _setting_default(default: object) -> str:
    if default in (None, (), {}):
        return ""
    if isinstance(default, tuple):
        return ", ".join(default)
    return str(default).lower().removesuffix(".0")


# -- agents -------------------------------------------------------------------------------------

SUPPORT = {"agent": "agent", "steno": "steno", "no": ""}


def agents_page() -> str:
    versions = msgspec.json.decode((HERE / "versions.json").read_bytes())
    head = [f"`{name}`" for name in AGENTS]
    rows = [
        [
            f"`--{option.rstrip('_').replace('_', '-')}`",
            *(SUPPORT[option_support(agent, option)] for agent in AGENTS.values()),
        ]
        for option in OPTION_FIELDS
    ]
    sized = [
        [f"`{name}`", *([f"`{model}`" for model in agent.launch.models_by_size] or [""] * 3)]
        for name, agent in AGENTS.items()
    ]
    modes = [
        [f"`{name}`", ", ".join(f"`{mode}`" for mode in agent.launch.permission_modes) or "its own"]
        for name, agent in AGENTS.items()
    ]
    return page(
        "Agents",
        "All agents take the same options. An option that neither the agent nor steno supports is "
        "an error before the start (exit code 2). If it comes from a variable or a file that "
        "applies to all agents, it is ignored with a message. `steno doctor` shows this table for "
        "the installed agents.",
        "## Options",
        "`agent`: supported by the agent. `steno`: implemented by steno. Empty: not supported.",
        table(["option", *head], rows),
        "steno enforces `--max-cost` from the usage that the agent reports. `codex`, `copilot` and "
        "`gemini` report it only at the end of a run, so the budget stops the next attempt, not "
        "the current one; steno says so before the start, and during the run if a request has no "
        "known price. `--json-schema` puts the schema into the prompt and checks the answer, with "
        "every agent. `--fallback-model` works with `--on-limit fallback`. Time limits, "
        "`--max-tokens`, `--attempts`, `--env`, `--no-api-key` and all other options are "
        "implemented by steno for every agent.",
        "## Models",
        "Models behind `--model small`, `medium` and `large`. Set others in `steno.toml` below "
        "`[models.NAME]`; `steno config` shows the values in use.",
        table(["agent", *MODEL_SIZES], sized),
        "## Permission modes",
        "Values for `--permission-mode`: the common ones (`default`, `plan`, `acceptEdits`, "
        "`dontAsk`, `bypassPermissions`) where the agent has an equivalent, and its own.",
        table(["agent", "modes"], modes),
        "## Versions",
        "`make drift` runs these versions on a scripted model server and compares every report "
        "with what the server sent: verdict, tokens, cost, context and changed files, in "
        f"{len(versions[0]['situations'])} situations ("
        + ", ".join(result["situation"] for result in versions[0]["situations"])
        + ").",
        table(["agent", "version", "right", "unknown", "wrong"], [*map(_version_row, versions)]),
    )


def _version_row(version: dict[str, Any]) -> list[str]:
    """A row of the table of versions, from the result of `tests.drift`."""
    results = version["situations"]
    right = [result for result in results if not result["wrong"] and not result["unknown"]]
    unknown = dict.fromkeys(name for result in results for name in result["unknown"])
    wrong = [
        f"{result['situation']}: {', '.join(result['wrong'])}"
        for result in results
        if result["wrong"]
    ]
    counted = f"{len(right)} of {len(results)}"
    return [
        f"`{version['agent']}`",
        version["version"],
        counted,
        ", ".join(unknown),
        "; ".join(wrong),
    ]


# -- the command line ---------------------------------------------------------------------------


def cli_page() -> str:
    parts: list[str | list[str]] = [_help([])]
    subcommands = getattr(cli, "LEDGER_COMMANDS", {})
    commands = {**cli.COMMANDS, **{f"ledger {name}": text for name, text in subcommands.items()}}
    for name, summary in commands.items():
        if name not in getattr(cli, "BUILT_IN_COMMANDS", ()):
            text = f"{summary[:1].upper()}{summary[1:]}."
            parts += [f"## steno {name}", text, _help(name.split())]
    codes = [
        ["0", "success; for `steno show` and ledger queries, whatever the verdicts are"],
        ["1", "`steno doctor`: a problem was found"],
        ["1", "`steno sync`, `steno run --sync`, `steno watch --strict`: a file was not synced"],
        ["1", "`--on`: a command failed or was not run"],
        [str(cli.EXIT_USAGE_ERROR), "wrong usage, or unreadable input (the rest was processed)"],
        ["3", "`steno budget check` and `steno budget list --check`: a budget is exceeded"],
        [str(cli.EXIT_INTERNAL_ERROR), "internal error; `--debug` shows the traceback"],
        [str(cli.EXIT_WRITE_FAILED), "the output or the recording could not be written"],
        [str(cli.EXIT_INTERRUPTED), "interrupted (Ctrl-C)"],
        [str(cli.EXIT_PIPE_CLOSED), "the reader of the output closed the pipe"],
    ]
    settings = [
        ["`COLUMNS`", "page width (default: that of the terminal, else 80)"],
        ["`NO_COLOR`", "not empty: no colours"],
        ["`FORCE_COLOR`", "not empty and not 0: colours even without a terminal"],
        ["`STENO_LEDGER`", "ledger: a path or `postgresql://...`; overridden by `--ledger`"],
        ["`TZ`", "time zone for day boundaries; overridden by `--timezone`"],
        ["`STENO_DEBUG`", "not empty and not 0: same as `--debug`"],
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
        "`steno run` exits with the code of the verdict (`--exit-from verdict`, the default) or of "
        "the agent (`--exit-from agent`; 128 plus the signal number for a signal). Interrupted "
        "with Ctrl-C, it exits with 130, whatever the last verdict was. `steno show` and "
        "`steno watch` use the verdict's code only with `--exit-from verdict`; with several "
        "sources `show` uses the highest, and 2 takes precedence. `steno replay` exits like "
        "the recorded agent, with its code or by its signal."
    )
    parts += [
        table(["code of `steno run`", "verdict"], codes_of),
        "## Environment",
        table(["variable", "effect"], settings),
    ]
    return page("Command line", *parts)


def _help(command: list[str]) -> str:
    output = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = HELP_COLUMNS
    try:
        with contextlib.redirect_stdout(output):
            cli.main([*command, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.__setitem__("COLUMNS", before)
    return f"```text\n{output.getvalue().rstrip()}\n```"


# -- the ledger ---------------------------------------------------------------------------------


def ledger_page() -> str:
    blocks: list[str | list[str]] = [
        "Tables for `steno ledger sql` ([examples](../howto/ask-the-ledger.md)). Read-only. Types "
        "are those of SQLite; PostgreSQL uses BIGINT and BYTEA for INTEGER and BLOB.",
        "Times (`at`, `..._at`) are milliseconds since 1970 (UTC), `hour` is hours since 1970, "
        "`..._ms` are milliseconds. Money (`..._nano`) is in nano-dollars: divide by 1e9. Booleans "
        "are 1 or 0. Unknown is NULL. `steno ledger rebuild` recreates the ledger from the files, "
        "so don't write into it.",
    ]
    for name, about, rows in ledger_tables.parts():
        blocks += [f"## {name}", about, table(["column", "type", "meaning"], rows)]
    return page("Ledger tables", *blocks)


# -- writing or checking ------------------------------------------------------------------------


def pages() -> dict[str, str]:
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


def main(argv: list[str]) -> int:
    """Write the pages, or compare them with --check."""
    check = "--check" in argv
    folder = next((Path(arg) for arg in argv if arg != "--check"), HERE)
    exit_code = 0
    for name, text in pages().items():
        path = folder / name
        if not check:
            path.write_text(text, "utf-8")
        elif not path.is_file() or path.read_text("utf-8") != text:
            message = f"{path}: differs from the source; run: python docs/reference/generate.py\n"
            sys.stderr.write(message)
            exit_code = 1
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
