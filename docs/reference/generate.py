"""Generates the reference pages from the source, or checks that they are up to date.

    python docs/reference/generate.py [FOLDER]            write the pages (default: this folder)
    python docs/reference/generate.py --check [FOLDER]    exit 1 and list the pages that differ

Names, types, docstrings, hints and help texts come from the source; `meanings.py` describes the
fields that have no docstring. A field without a description is an error, and vice versa.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ledger_page as ledger_tables
import msgspec
from cli_page import cli_page
from library_page import library_page, testing_page
from meanings import REPORT_FIELDS
from source import Field, Shape, code_type, docstring, page, shapes, table, text_block, typed

from steno import event, report
from steno import event as ev
from steno.agents import AGENTS
from steno.agents.base import OPTION_FIELDS, option_support
from steno.analysis.facts import ERROR_CATEGORIES, Facts
from steno.analysis.verdict import RULES, Rule
from steno.cli.options import option_name
from steno.config import AGENT_SETTINGS, MODEL_SIZES, SETTINGS, Setting
from steno.report import BackgroundTask, DeniedCall, Report

HERE = Path(__file__).parent

# The docstrings of other structs of the report repeat their fields.
WITH_DOCSTRING = ("TaskReport", "Attempt", "Tokens", "Context", "ModelSummary", "RequestRetry")

# -- the report ---------------------------------------------------------------------------------


def report_page() -> str:
    structs = _report_structs(
        {name: shape for name, shape in shapes(report).items() if shape.fields}
    )
    _add_reason(structs["Report"].fields)
    _check_descriptions(structs)
    links = {name: f"#{name.lower()}" for name in structs}
    parts: list[str | list[str]] = [
        "Printed by `steno show --json` (one object per line) and returned by `steno.read`. "
        "`steno run --json` and `steno.run` give a [TaskReport](#taskreport), which adds the "
        "fields of the task. Unknown values are null (`None` in Python), never 0; `?` marks the "
        "types that can be. Times are `datetime` values in Python and ISO 8601 text in JSON. Every "
        f"field is always present. Schema: `{report.SCHEMA}`.",
    ]
    first = ["Report", "TaskReport", "Attempt"]
    for name in [*first, *(name for name in structs if name not in first)]:
        text = structs[name].text if name in WITH_DOCSTRING else ""
        heading = [f"## {name}", text] if name != "Report" else []
        parts += [*heading, *_report_fields(structs[name], links)]
    return page("Report", *parts)


def _add_reason(fields: list[Field]) -> None:
    """`reason` is computed from other fields; in JSON it follows `error`."""
    place = 1 + [field.name for field in fields].index("error")
    fields.insert(place, Field("reason", "str | None", None))


def _report_fields(shape: Shape, links: dict[str, str]) -> Iterator[str | list[str]]:
    """A table of the fields; those that mean the same in another struct are listed below it."""
    rows = []
    elsewhere: dict[str, list[str]] = {}
    for field in shape.fields:
        meaning = REPORT_FIELDS[shape.name][field.name]
        if meaning.startswith("= "):
            elsewhere.setdefault(meaning[2:], []).append(f"`{field.name}`")
        else:
            rows.append([f"`{field.name}`", typed(_json_type(field.type), links), meaning])
    yield table(["field", "type", "meaning"], rows)
    for other, names in elsewhere.items():
        yield f"As in [{other}]({links[other]}): {', '.join(names)}."


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
    parts: list[str | list[str]] = [
        "Printed by `steno show --events` (one object per line; `--only KIND[,KIND]` selects) and "
        "yielded by `steno.events`. In JSON, `event` is the kind, fields with their default value "
        "are omitted, `Raw` is the agent's own JSON, `bytes` are base64 text, and times are ISO "
        "8601 text.",
        "`?` marks a type that can be null (`None` in Python). Defaults are null for these and for "
        "`Raw`, else false, empty, or as shown.",
        "In Python the classes are in `steno.event`, and a `Raw` is undecoded bytes. "
        "`steno.decode_raw` decodes it:",
        RAW,
        "## Common fields",
        shared.text,
        _fields(shared),
    ]
    nested = [name for name, shape in structs.items() if shape.base == "Struct"]
    for name in [name for name in structs if name not in nested] + nested:
        tag = "Nested value" if name in nested else f"`{_tag(name)}`"
        parts += [f"## {name}", f"{tag}. {structs[name].text}", _fields(structs[name])]
    return page("Events", *parts)


def _tag(name: str) -> str:
    return str(getattr(event, name).__struct_config__.tag)


RAW = """```python
import steno
from steno.event import ToolCall

for event in steno.events("tests/recordings/claude/2.1.325/permission_denied"):
    if isinstance(event, ToolCall):
        print(event.name, steno.decode_raw(event.input))
```"""


def _fields(shape: Shape) -> str:
    encoded = {
        field.name: field.encode_name
        for field in msgspec.structs.fields(getattr(event, shape.name))
    }
    lines = []
    for field in shape.fields:
        line = f"{field.name}: {code_type(field.type)}"
        if field.default not in (None, "None", "NO_JSON", "False", "()", "''", "b''"):
            line += f" = {field.default}"
        if encoded[field.name] != field.name:
            line += f"  # JSON: {encoded[field.name]}"
        lines.append(line)
    return text_block(lines)


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
        "billing": [_failed(api_error="billing_error")],
        "api": [_failed(api_status=500)],
        "network": [_failed(text="Connection error.")],
        "invalid_request": [_failed(api_status=404)],
        "context_full": [_failed(terminal_reason="prompt_too_long")],
        "refused": [
            _failed(stop_reason="refusal"),
            _facts(result=_result(subtype="success", stop_reason="refusal")),
        ],
        "permission": [
            _facts(result=done, unresolved_denials=[denial], hint_templates=AGENTS["claude"].hints)
        ],
        "interactive": [_facts(result=done, final_text="Which one?")],
        "background_task": [_waiting()],
        "stopped": [_facts(result=_result(terminal_reason="hook_stopped", text="Stopped."))],
        "policy": [_stopped("policy: forbid_commands: ran: git push")],
        "empty": [_facts(result=_result(subtype="success"))],
        "no_result": [
            _facts(),
            _facts(
                result=done,
                schema_check=ev.SchemaChecked(0, None, None, None, wrong=("$.age: ...",)),
            ),
            _facts(result=_result(subtype="success", stop_reason="max_tokens")),
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
    matches = {word: [_matching_rule(word, facts) for facts in cases[word]] for word in cases}
    rows = [
        [
            f"`{word}`",
            report.VERDICT_MEANINGS[word],
            _category(word),
            ", ".join(dict.fromkeys(f"`{rule.__name__}`" for rule, _ in matches[word] if rule)),
        ]
        for word in report.VERDICTS
    ]
    rules = [
        f"{number}. `{rule.__name__}`: {' '.join(docstring(rule.__doc__).split())}"
        for number, rule in enumerate(RULES, 1)
    ]
    return page(
        "Verdicts",
        "Every run has exactly one verdict, with the lines that prove it (`evidence`), an error "
        "message if there is one, and a hint.",
        table(["verdict", "meaning", "error_category", "rules"], rows),
        "## Rules",
        "The first matching rule decides; if none matches, the verdict is `success`. "
        "`--no-advice` disables `detect_open_question` and `detect_background_work`.",
        rules,
        "Gemini CLI and Qwen Code do not print why the model stopped, and Copilot writes it only "
        "to its session file (since 1.0.102): there, `stop_reason` is null, and an answer that was "
        "cut off at the output limit or by a content filter cannot be told from a complete one. "
        "If it has text, it is a success.",
        "## Hints",
        [f"- `{word}`: {hints}" for word in matches if (hints := _hints(matches[word]))],
    )


def _hints(matches: list[tuple[Rule | None, str | None]]) -> str:
    return "; or: ".join(dict.fromkeys(f"“{hint.strip()}”" for _, hint in matches if hint))


def _category(word: str) -> str:
    return f"`{ERROR_CATEGORIES[word]}`" if word in ERROR_CATEGORIES else "null"


def _matching_rule(word: str, facts: Facts) -> tuple[Rule | None, str | None]:
    """The rule that gives this verdict, and its hint."""
    for rule in RULES:
        judgement = rule(facts)
        if judgement is not None:
            if judgement.verdict != word:
                raise SystemExit(f"verdicts.md: the sample for {word} gives {judgement.verdict}")
            return rule, judgement.hint
    if word != "success":
        raise SystemExit(f"verdicts.md: no rule matches the sample for {word}")
    return None, None


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
        f"`{option_name(setting.name)} {setting.metavar}`".replace(" `", "`"),
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
        return ", ".join(map(str, default))
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
        "steno enforces `--max-cost` and `--max-tokens` after each request, from the usage that "
        "the agent reports. The streams of `codex`, `copilot` and `gemini` have none before the "
        "end of a run: for them steno follows the session file that the agent writes. If that file "
        "is not found (`copilot --continue` names its session only at the end) or has no usage "
        "(`copilot` up to 1.0.92), or if a request has no known price, the budget stops the next "
        "attempt, not the current one; a warning says so. "
        "`--json-schema` puts the schema into the prompt and checks the "
        "answer, with every agent. `--fallback-model` works with `--on-limit fallback`. Time "
        "limits, `--attempts`, `--env`, `--no-api-key` and all other options are "
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
        "with what the server sent: verdict, tokens, requests, cost, context and changed files, in "
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


# -- the ledger ---------------------------------------------------------------------------------


def ledger_page() -> str:
    tables = ledger_tables.parts()
    common = ledger_tables.common_columns(tables)
    blocks: list[str | list[str]] = [
        "Tables for `steno ledger sql` ([examples](../howto/ask-the-ledger.md)). Read-only. Types "
        "are those of SQLite; PostgreSQL uses BIGINT and BYTEA for INTEGER and BLOB. `?` marks "
        "columns that can be NULL, which means unknown.",
        "Times (`at`, `..._at`) are milliseconds since 1970 (UTC), `hour` is hours since 1970, "
        "`..._ms` are milliseconds. Money (`..._nano`) is in nano-dollars: divide by 1e9. Booleans "
        "are 1 or 0. `steno ledger rebuild` recreates the ledger from the files, so don't write "
        "into it.",
        "## How sources are joined",
        "Output, session files, their subagents' files and recordings of one session show the same "
        "requests. Every change of a session applies these rules to all that is known of it, so "
        "the order of imports does not matter.",
        table(["what", "rule"], ledger_tables.JOIN_RULES),
        "## Common columns",
        "These mean the same in every table that shows them without a description.",
        table(["column", "meaning"], [[f"`{name}`", text] for name, text in common.items()]),
    ]
    for name, columns in tables.items():
        blocks += [f"## {name}", ledger_tables.TABLES[name]]
        if name == "glances":
            names = ", ".join(f"`{column.name}`" for column in columns)
            blocks.append(f"Columns as in [sources](#sources): {names}.")
        else:
            blocks.append(text_block(ledger_tables.lines(columns, common)))
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
