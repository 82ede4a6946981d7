"""Every rule: a value that a recording keeps and one that it breaks, with figure and evidence."""

from pathlib import Path
from typing import Any

import pytest

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
# Rule, recording, value that holds, value that is broken, message, lines.
CASES: dict[str, tuple[str, Any, Any, str, tuple[int, ...]]] = {
    "verdict": (DENIED, ["success", "permission"], "success", "verdict permission", (5, 7)),
    "max_cost": (EDIT, 0.09, 0.08, "cost $0.0821, limit $0.0800", (30,)),
    "max_tokens": (EDIT, "148k", 147_990, "tokens 147,991, limit 147,990", (30,)),
    "max_turns": (DENIED, 3, 2, "turns 3, limit 2", (5, 7)),
    "max_duration": (DENIED, "1s", "0.1s", "duration 0.1 s, limit 0.1 s", (5, 7)),
    "max_context": (DENIED, 0.03, 0.02, "peak context 2.1 %, limit 2.0 %", (5, 7)),
    "max_retries": (RETRIED, 2, 0, "", ()),
    "max_denials": (DENIED, 2, 1, "denied calls 2, limit 1", (5, 7)),
    "max_tool_errors": (EDIT, 8, 0, "", ()),
    "require_tools": (EDIT, ["Edit", "Note*"], ["WebFetch"], "not used: WebFetch", ()),
    "allow_tools": (DENIED, ["Write", "Bash"], ["Write"], "used: Bash", (4,)),
    "forbid_tools": (DENIED, ["Web*"], ["B*"], "used: Bash", (4,)),
    "require_commands": (
        EDIT,
        ["^git status"],
        ["^make"],
        "no successful command matches ^make",
        (),
    ),
    "forbid_commands": (
        EDIT,
        ["rm -rf"],
        ["git (push|status)"],
        "ran: git status --short; python3 -c 'print(6*7)'; echo warn >&2",
        (23,),
    ),
    "allow_files": (EDIT, ["src/", "*.ipynb"], ["src"], "changed: nb.ipynb", (22,)),
    "forbid_files": (EDIT, ["docs/"], ["src/n*.py"], "changed: src/new.py", (18,)),
    "require_files": (EDIT, ["src/app.py"], ["tests/"], "not changed: tests/", ()),
    "max_files": (EDIT, 3, 2, "changed files 3, limit 2", (30,)),
    "max_changed_lines": (EDIT, 27, 26, "changed lines 27, limit 26", (30,)),
    "max_repeated_calls": (EDIT, 2, 0, "", ()),
    "max_repeated_failures": (EDIT, 2, 0, "", ()),
    "require_text": (DENIED, "permission", "done", "missing in the answer: done", ()),
    "forbid_text": (DENIED, "done", "permission", "found in the answer: permission", ()),
    "match_text": (DENIED, "could (not )?get", "^OK$", "the answer does not match ^OK$", ()),
    "count_text": (
        DENIED,
        {"match": "I ", "min": 1, "max": 2},
        [{"match": "url", "min": 1}],
        "url: 0 in the answer, at least 1 wanted",
        (),
    ),
    "min_text_length": (DENIED, 60, 67, "answer has 66 characters, at least 67 wanted", ()),
    "max_text_length": (DENIED, 66, 65, "characters of the answer 66, limit 65", (5, 7)),
    "json_schema": (
        DENIED,
        None,
        {"type": "object"},
        "invalid answer: no JSON in the answer",
        (),
    ),
}


def facts_of(name: str) -> RunFacts:
    return read_facts(open_path(CLAUDE / name), price=price, with_patch=True)


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
def test_rule(rule: str, tmp_path: Path) -> None:
    name, good, bad, message, lines = CASES[rule]
    facts = facts_of(name)
    if good is not None:
        assert check(rule, good, facts, tmp_path) == []
    (finding,) = check(rule, bad, facts, tmp_path)
    assert finding.rule == rule
    if message:
        assert (finding.message, finding.lines) == (message, lines)


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
        ("across.baseline", "median cost_usd 1.2, baseline 1 (+20%)"),
    ]
    add_rule(policy, "tolerance=0.5")
    assert not [
        finding
        for finding in policy.check_across(runs(1.0, 1.2, 1.4, failed=1))
        if finding.rule == "across.baseline"
    ]


def test_baselines(baselines: None, tmp_path: Path) -> None:
    summary = summarize(runs(1.0, 3.0, None, failed=1))
    assert (summary.cost_usd.known, summary.cost_usd.median) == (2, 2.0)
    path = tmp_path / "shared.json"
    save_baseline(str(path), summary)
    assert load_baseline(str(path)) == summary
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
            "{path}:1:1: verdict: expected verdicts (",
        ),
    ],
)
def test_wrong_policies(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(StenoError) as error:
        load_policy(path)
    assert str(error.value).startswith(message.format(path=path))
