"""Policies: the rules in a TOML file and on the command line, and their findings for runs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ..config import require_known_name
from ..config.files import SettingsFile, read_settings_file
from ..errors import StenoError
from ..report import Report
from .across import ACROSS_RULES, check_across
from .facts import RunFacts
from .rules import RULES, RuleFinding, check_rule


class Policy(Struct):
    """Rules by name with their parsed values; `across` are those over several runs."""

    rules: dict[str, Any] = field(default_factory=dict)
    across: dict[str, Any] = field(default_factory=dict)

    def needs(self, kind: str) -> bool:
        """Whether a rule needs the calls or the patch of a run."""
        return any(RULES[name].needs == kind for name in self.rules)

    def check(self, facts: RunFacts) -> list[RuleFinding]:
        """What one run breaks."""
        return [
            finding
            for name, value in self.rules.items()
            for finding in check_rule(name, value, facts)
        ]

    def check_across(self, reports: list[Report]) -> list[RuleFinding]:
        """What several runs of one task break together."""
        return check_across(self.across, reports)

    def live_rules(self) -> dict[str, Any]:
        """The rules that can stop an active run."""
        return {name: value for name, value in self.rules.items() if RULES[name].is_live}


class CheckResult(Struct):
    """One run, by its name for people, and what it breaks."""

    name: str
    report: Report
    findings: list[RuleFinding]

    @property
    def ok(self) -> bool:
        return not self.findings


def load_policy(path: Path) -> Policy:
    """Read a policy. StenoError, with the location of the mistake, if it is invalid."""
    file = read_settings_file(path)
    policy = Policy()
    for name, value in file.table.items():
        if name == "across":
            policy.across = _parse_across(file, value)
            continue
        location = file.location_of(name)
        if name in ACROSS_RULES:
            raise StenoError(f"{location}: {name}: a rule over several runs; move it to [across]")
        require_known_name(name, [*RULES, "across"], f"{location}: unknown rule {name!r}")
        policy.rules[name] = _parse_value(name, value, location, path.parent)
    if not policy.rules and not policy.across:
        raise StenoError(f"{path}: no rules; see: steno check --list-rules")
    return policy


def _parse_across(file: SettingsFile, table: Any) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise StenoError(f"{file.location_of('across')}: expected a table: [across]")
    values = {}
    for name, value in table.items():
        location = file.location_of("across", name)
        if name in RULES:
            raise StenoError(f"{location}: {name}: a rule for each run; move it above [across]")
        require_known_name(name, ACROSS_RULES, f"{location}: unknown rule {name!r}")
        values[name] = _parsed(ACROSS_RULES[name].parse, value, name, location)
    return values


def build_policy(path: str | None, rules: Iterable[str], baseline: str | None) -> Policy:
    """The policy of a file, of rules given as `name=value`, and of the name of a baseline."""
    policy = load_policy(Path(path)) if path is not None else Policy()
    for text in rules:
        add_rule(policy, text)
    if baseline is not None:
        add_rule(policy, f"baseline={baseline}")
    return policy


def add_rule(policy: Policy, text: str) -> None:
    """Add a rule given as `name=value`, with the value as in TOML or as plain text."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        raise StenoError(f"--rule {text}: expected NAME=VALUE, such as max_cost=2")
    location = f"--rule {text}"
    if name in ACROSS_RULES:
        parse = ACROSS_RULES[name].parse
        policy.across[name] = _parsed(parse, _toml_value(value), name, location)
        return
    known = [*RULES, *ACROSS_RULES]
    require_known_name(name, known, f"{location}: unknown rule {name!r}")
    policy.rules[name] = _parse_value(name, _toml_value(value), location, Path())


def policy_from_values(values: Mapping[str, Any]) -> Policy:
    """A policy from Python values by rule; StenoError if one is invalid."""
    policy = Policy()
    for name, value in values.items():
        require_known_name(name, RULES, f"unknown rule {name!r}")
        plain = list(value) if isinstance(value, tuple | set | frozenset) else value
        policy.rules[name] = _parse_value(name, plain, "rule", Path())
    return policy


def _toml_value(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _parse_value(name: str, value: Any, location: str, folder: Path) -> Any:
    parsed = _parsed(RULES[name].parse, value, name, location)
    return _load_schema(parsed, location, folder) if name == "json_schema" else parsed


def _parsed(parse: Any, value: Any, name: str, location: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise StenoError(f"{location}: {name}: expected {error}") from None


def _load_schema(value: Any, location: str, folder: Path) -> Any:
    """The schema; a path is relative to the policy's folder."""
    import msgspec

    from ..runner.json_schema import AnswerSchema, load_json_schema

    if isinstance(value, dict):
        return AnswerSchema(msgspec.json.encode(value), location)
    path = value if value.lstrip().startswith("{") else str(folder / Path(value).expanduser())
    return AnswerSchema(load_json_schema(path, location), location)


def as_warnings(findings: Iterable[RuleFinding]) -> list[str]:
    """The findings as warnings of a report."""
    return [f"policy: {finding.rule}: {finding.message}" for finding in findings]
