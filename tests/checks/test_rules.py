"""Every rule: a recording that keeps it and one that breaks it, with figure and evidence."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from steno.checks.across import ACROSS_RULES, load_baseline, save_baseline, summarize
from steno.checks.facts import RunFacts, read_facts
from steno.checks.policy import Policy, add_rule, load_policy
from steno.checks.rules import RULES, RuleFinding, matches_path
from steno.errors import StenoError
from steno.pricing import price
from steno.recording.open import open_path
from steno.report import Cost, Report
from tests.support.claude_lines import (
    RECORDINGS,
    answer,
    assistant,
    call,
    folder,
    init,
    result,
    stream,
)

CLAUDE = RECORDINGS / "claude/2.1.325"
EDIT, DENIED, RETRIED = "multi_tool_edit", "permission_denied", "api_429_recovers"
LOOP = "loop"  # made below: the same command fails four times


class Case(NamedTuple):
    """A rule with a recording that keeps it and one that breaks it, with message and lines."""

    value: Any
    kept: str
    broken: str
    message: str
    lines: tuple[int, ...] = ()


CASES: dict[str, Case] = {
    "verdict": Case("success", EDIT, DENIED, "verdict permission", (5, 7)),
    "max_cost": Case(0.08, DENIED, EDIT, "cost $0.0821, limit $0.0800", (30,)),
    "max_tokens": Case("100k", DENIED, EDIT, "tokens 147,991, limit 100,000", (30,)),
    "max_turns": Case(10, DENIED, EDIT, "turns 14, limit 10", (30,)),
    "max_duration": Case("1s", DENIED, RETRIED, "duration 3.2 s, limit 1.0 s", (5,)),
    "max_context": Case(0.8, DENIED, "compact_auto", "peak context 96.0 %, limit 80.0 %", (9,)),
    "max_retries": Case(1, EDIT, RETRIED, "retried requests 2, limit 1", (5,)),
    "max_denials": Case(0, EDIT, DENIED, "denied calls 2, limit 0", (5, 7)),
    "max_tool_errors": Case(2, DENIED, EDIT, "failed calls 7, limit 2", (30,)),
    "require_tools": Case(["Edit", "Note*"], EDIT, DENIED, "not used: Edit, Note*"),
    "allow_tools": Case(["Write", "Bash"], DENIED, "image_result", "used: Read", (2,)),
    "forbid_tools": Case(["B*"], "image_result", DENIED, "used: Bash", (4,)),
    "require_commands": Case(
        ["^git status"], EDIT, "tool_error", "no successful command matches ^git status"
    ),
    "forbid_commands": Case(
        ["git (push|status)"],
        DENIED,
        EDIT,
        "ran: git status --short; python3 -c 'print(6*7)'; echo warn >&2",
        (23,),
    ),
    "allow_files": Case(["src/"], DENIED, EDIT, "changed: nb.ipynb", (22,)),
    "forbid_files": Case(["src/n*.py"], DENIED, EDIT, "changed: src/new.py", (18,)),
    "require_files": Case(["src/app.py"], EDIT, DENIED, "not changed: src/app.py"),
    "max_files": Case(2, DENIED, EDIT, "changed files 3, limit 2", (30,)),
    "max_changed_lines": Case(10, "unicode_write", EDIT, "changed lines 27, limit 10", (30,)),
    "max_repeated_calls": Case(
        3, EDIT, LOOP, "the same call 4 times in a row, limit 3: make", (2, 4, 6, 8)
    ),
    "max_repeated_failures": Case(
        3, EDIT, LOOP, "the same call failed 4 times in a row, limit 3: make", (2, 4, 6, 8)
    ),
    "require_text": Case("permission", DENIED, EDIT, "missing in the answer: permission"),
    "forbid_text": Case("permission", EDIT, DENIED, "found in the answer: permission"),
    "match_text": Case(
        "could (not )?get", DENIED, EDIT, "the answer does not match could (not )?get"
    ),
    "count_text": Case(
        {"match": "heading", "min": 2},
        "slash_context",
        DENIED,
        "heading: 0 in the answer, at least 2 wanted",
    ),
    "min_text_length": Case(60, DENIED, EDIT, "answer has 51 characters, at least 60 wanted"),
    "max_text_length": Case(60, EDIT, DENIED, "characters of the answer 66, limit 60", (5, 7)),
    "json_schema": Case(
        {"type": "object"},
        "json_schema_invalid_then_ok",
        "json_schema_never",
        "invalid answer: no JSON in the answer",
    ),
}


@pytest.fixture
def recordings(tmp_path: Path) -> Callable[[str], RunFacts]:
    """Read a recording by its name."""

    def read(name: str) -> RunFacts:
        path = CLAUDE / name
        if name == LOOP:
            path = folder(tmp_path / "loop", stream(*loop(4)), 0)
        return read_facts(open_path(path), price=price, with_patch=True)

    return read


def check(rule: str, value: Any, facts: RunFacts, tmp_path: Path) -> list[RuleFinding]:
    """The findings of a policy file with this rule."""
    path = tmp_path / "policy.toml"
    path.write_text(f"{rule} = {toml(value)}\n")
    return load_policy(path).check(facts)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f"'{value}'" if isinstance(value, str) else str(value)


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_recording_keeps_the_rule_and_another_breaks_it(
    rule: str, recordings: Callable[[str], RunFacts], tmp_path: Path
) -> None:
    value, kept, broken, message, lines = CASES[rule]
    assert check(rule, value, recordings(kept), tmp_path) == []
    (finding,) = check(rule, value, recordings(broken), tmp_path)
    assert (finding.rule, finding.message, finding.lines) == (rule, message, lines)


def test_a_limit_of_an_unknown_figure_is_broken() -> None:
    policy = Policy()
    add_rule(policy, "max_cost=1")
    (finding,) = policy.check(RunFacts(Report()))
    assert (finding.message, finding.actual) == ("cost unknown (limit $1.00)", None)


def test_a_valid_answer_keeps_its_schema(tmp_path: Path) -> None:
    (tmp_path / "bug.json").write_text('{"type": "object", "required": ["file"]}')
    report = Report(text='```json\n{"file": "a.py"}\n```')
    assert check("json_schema", "bug.json", RunFacts(report), tmp_path) == []


def loop(times: int, is_error: bool = True) -> list[Any]:
    """The same command several times."""
    lines: list[Any] = [init()]
    for number in range(times):
        id_ = f"toolu_{number}"
        lines.append(assistant(call(id_, "Bash", command="make"), id_=f"msg_{number}"))
        lines.append(answer(id_, "no rule", is_error))
    return [*lines, result("Done.")]


@pytest.mark.parametrize(
    ("times", "is_error", "rules"),
    [
        (3, True, []),
        (4, True, ["max_repeated_failures"]),
        (5, False, []),
        (6, False, ["max_repeated_calls"]),
        (6, True, ["max_repeated_calls", "max_repeated_failures"]),
    ],
)
def test_loops(times: int, is_error: bool, rules: list[str], tmp_path: Path) -> None:
    facts = read_facts(open_path(folder(tmp_path / "run", stream(*loop(times, is_error)), 0)))
    policy = Policy()
    add_rule(policy, "max_repeated_calls=5")
    add_rule(policy, "max_repeated_failures=3")
    findings = policy.check(facts)
    assert [finding.rule for finding in findings] == rules
    assert all(finding.lines == tuple(range(2, 2 * times + 1, 2)) for finding in findings)


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("src/app.py", "src", True),
        ("src/app.py", "src/", True),
        ("src2/app.py", "src", False),
        ("src/deep/app.py", "src/*.py", False),
        ("src/deep/app.py", "src/**/*.py", True),
        ("src/app.py", "src/**/*.py", True),
        ("a/package.lock", "**/*.lock", True),
        ("/etc/passwd", "src/", False),
        ("/etc/passwd", "/etc", True),
        ("anything", ".", True),
        ("a.py", "?.py", True),
    ],
)
def test_paths(path: str, pattern: str, expected: bool) -> None:
    assert matches_path(path, [pattern]) is expected


# -- several runs --------------------------------------------------------------------------------


def runs(*costs: float | None, failed: int = 0) -> list[Report]:
    reports = [Report(verdict="success", ok=True, cost=Cost(cost, "reported")) for cost in costs]
    for report in reports[:failed]:
        report.verdict = "api"
        report.ok = False
    return reports


@pytest.fixture
def baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_rules_over_several_runs(baselines: None) -> None:
    save_baseline("main", summarize(runs(1.0, 1.0, 1.0)))
    policy = Policy()
    for text in ("min_runs=4", "min_success=0.8", "max_cost_spread=0.1", "baseline=main"):
        add_rule(policy, text)
    assert set(policy.across) | {"tolerance"} == set(ACROSS_RULES)
    findings = policy.check_across(runs(1.0, 1.2, 1.4, failed=1))
    assert [(finding.rule, finding.message) for finding in findings] == [
        ("across.min_runs", "3 runs, at least 4 wanted"),
        (
            "across.min_success",
            "success rate 67% (2 of 3, 95 % interval 21% to 94%), at least 80% wanted",
        ),
        ("across.max_cost_spread", "cost varies by 17% of its mean, limit 10%"),
        ("across.baseline", "success rate 67%, baseline 100%"),
        ("across.baseline", "median cost $1.20, baseline $1.00 (+20%)"),
    ]
    add_rule(policy, "tolerance=0.5")
    assert not [
        finding
        for finding in policy.check_across(runs(1.0, 1.2, 1.4, failed=1))
        if finding.rule == "across.baseline"
    ]


# Rule, value, recordings that keep it, recordings that break it, message.
ACROSS_CASES = {
    "min_runs": (3, [EDIT] * 3, [EDIT] * 2, "2 runs, at least 3 wanted"),
    "min_success": (
        0.5,
        [EDIT, DENIED],
        [EDIT, DENIED, DENIED],
        "success rate 33% (1 of 3, 95 % interval 6% to 79%), at least 50% wanted",
    ),
    "max_cost_spread": (
        0.5,
        [EDIT, EDIT],
        [EDIT, RETRIED],
        "cost varies by 108% of its mean, limit 50%",
    ),
    "baseline": (
        "main",
        [DENIED, RETRIED],
        [DENIED, EDIT],
        "median tokens 95,102, baseline 31,658 (+200%)",
    ),
    "tolerance": (0.1, [EDIT], [], ""),  # part of `baseline`
}


@pytest.mark.parametrize("rule", ACROSS_RULES)
def test_recordings_keep_the_rule_and_others_break_it(
    rule: str, baselines: None, recordings: Callable[[str], RunFacts], tmp_path: Path
) -> None:
    value, kept, broken, message = ACROSS_CASES[rule]
    save_baseline("main", summarize([recordings(name).report for name in (DENIED, RETRIED)]))
    path = tmp_path / "policy.toml"
    path.write_text(f"[across]\n{rule} = {toml(value)}\n")
    policy = load_policy(path)
    assert policy.check_across([recordings(name).report for name in kept]) == []
    findings = policy.check_across([recordings(name).report for name in broken])
    if rule != "tolerance":
        assert (f"across.{rule}", message) in [(f.rule, f.message) for f in findings]


def test_baselines(baselines: None, tmp_path: Path) -> None:
    summary = summarize(runs(1.0, 3.0, None, failed=1))
    assert (summary.cost_usd.known, summary.cost_usd.median) == (2, 2.0)
    path = tmp_path / "shared.json"
    save_baseline(str(path), summary)
    assert replace(load_baseline(str(path)), saved_at=None) == summary
    with pytest.raises(StenoError, match="no baseline 'none'"):
        load_baseline("none")
    path.write_text("[]")
    with pytest.raises(StenoError, match="not a baseline of steno"):
        load_baseline(str(path))


# -- policy files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_cots = 1", "{path}:1:1: unknown rule 'max_cots'; did you mean max_cost?"),
        (
            'verdict = "success"\nmax_turns = "many"',
            "{path}:2:1: max_turns: expected a whole number, such as 0, 20 or 200k",
        ),
        (
            'forbid_commands = ["("]',
            "{path}:1:1: forbid_commands: expected a valid regular expression "
            "(missing ), unterminated subpattern at position 0): '('",
        ),
        ("[across]\nmin_runz = 3", "{path}:2:1: unknown rule 'min_runz'; did you mean min_runs?"),
        ("max_cost = ", "{path}:1:12: Invalid value"),
        ("", "{path}: no rules; see: steno check --list-rules"),
        (
            'verdict = "sucess"',
            "{path}:1:1: verdict: expected a verdict, found 'sucess'; did you mean success?",
        ),
        (
            "min_success = 0.8",
            "{path}:1:1: min_success: a rule over several runs; move it to [across]",
        ),
        (
            "[across]\nmax_cost = 2",
            "{path}:2:1: max_cost: a rule for each run; move it above [across]",
        ),
    ],
)
def test_wrong_policies(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(StenoError) as error:
        load_policy(path)
    assert str(error.value).startswith(message.format(path=path))


@pytest.mark.parametrize("rule", [*RULES, *ACROSS_RULES])
def test_wrong_types_and_misspelt_names(rule: str, tmp_path: Path) -> None:
    """Every rule: file, line, and what is expected, or the nearest known name."""
    path = tmp_path / "policy.toml"
    table = "[across]" if rule in ACROSS_RULES else "# rules"
    path.write_text(f"{table}\n\n{rule} = true\n")
    with pytest.raises(StenoError) as error:
        load_policy(path)
    assert str(error.value).startswith(f"{path}:3:1: {rule}: expected ")
    wrong = rule[:-2] + rule[-1]
    path.write_text(f"{table}\n\n{wrong} = 1\n")
    with pytest.raises(StenoError) as error:
        load_policy(path)
    assert str(error.value) == f"{path}:3:1: unknown rule {wrong!r}; did you mean {rule}?"


# -- the table of assertions in the documents ------------------------------------------------------

CHECK_PAGE = RECORDINGS.parents[1] / "docs/howto/check.md"
# Assertion: an answer that keeps its rule, and one that breaks it.
ASSERTIONS = {
    "contains": ("All tests pass.", "Some tests fail."),
    "not_contains": ("Done.", "Done. TODO: tests"),
    "regex": ("12 passed", "none passed"),
    "min_count": ("a passed, b passed, c passed", "a passed, b passed"),
    "min_length": ("x" * 200, "x" * 199),
    "max_length": ("x" * 2000, "x" * 2001),
    "has_urls": ("See https://example.org/a.", "See example."),
    "has_entries": ("- a\n- b\n1. c", "- a\n- b"),
    "has_format": ("# Title\n\n```sh\nmake\n```\n", "# Title\n\nmake\n"),
}


def assertion_rules() -> dict[str, str]:
    rows = re.findall(r"^\| (\w+) \| `(\w+ = .*)` \|$", CHECK_PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def test_the_documents_map_every_assertion() -> None:
    assert list(assertion_rules()) == list(ASSERTIONS)


@pytest.mark.parametrize("assertion", ASSERTIONS)
def test_assertion(assertion: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(assertion_rules()[assertion])
    policy = load_policy(path)
    kept, broken = ASSERTIONS[assertion]
    assert policy.check(RunFacts(Report(text=kept))) == []
    assert len(policy.check(RunFacts(Report(text=broken)))) == 1
