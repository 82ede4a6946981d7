"""`steno check`: checks runs against the rules of a policy."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from .. import agents
from ..analysis.redact_report import redact_report
from ..checks.across import ACROSS_RULES, save_baseline, summarize
from ..checks.facts import CallFact, RunFacts, read_facts
from ..checks.policy import CheckResult, Policy, build_policy
from ..checks.rules import RULES, RuleFinding
from ..errors import StenoError
from ..ledger.queries import check as queries
from ..ledger.queries import runs as run_queries
from ..ledger.store import Store, check_named_ledger, ledger_exists
from ..pricing import price
from ..recording.identify import skipped_message
from ..recording.open import find_recordings, open_path, open_recording
from ..views import check as view
from .commands import EXIT_FAILED
from .options import AGENT_HELP, CommandParser, add_rule_option
from .output_options import add_output_options, outputs_from_options
from .query_options import (
    NAME_FILTERS,
    open_updated_ledger,
    parse_filters,
    pop_row_limit,
    this_folder,
    time_range_from_options,
)
from .show import ID_PATTERN
from .show_views import STDIN_NAME
from .terminal import detect_style, print_error, print_json, print_lines, stdin_bytes

SCHEMA = "steno.check/1"
POLICY_FILE = "steno-policy.toml"
EXAMPLES = """examples:
  steno check run.jsonl --rule max_cost=2 --rule 'allow_files=["src/"]'
  steno check 3f9a21c0 --policy ci.toml      a run in the ledger, by ID prefix
  steno check --last 20 --rule min_success=0.8      the last runs of this folder
  steno check --last 20 --all --rule min_success=0.8
  steno check --tag suite=nightly --last 24h --json
  steno check --last 10 --save-baseline main
  steno check run.jsonl --junit report.xml   its verdict as a test report for CI
  steno check run.jsonl --policy ci.toml --sarif findings.sarif
  steno check --list-rules

Without --policy and --rule, steno-policy.toml in the current folder is used. A policy:

  verdict = "success"
  max_cost = 2.50
  allow_files = ["src/", "tests/"]
  forbid_commands = ["git push", "rm -rf"]
  max_repeated_failures = 3

The exit code is 0 if all rules hold, 1 if one is broken, 2 for a usage error. A limit on a figure
that is unknown counts as broken. Without rules, --junit, --sarif and --github check only the
verdict. In GitHub Actions (GITHUB_STEP_SUMMARY is set), --github is the default.
"""


def run(args: list[str]) -> int:
    """Run `steno check` and return its exit code."""
    parser = _build_parser()
    options = parser.parse_with_rest(args, "sources", are_paths=True)
    if options.list_rules:
        return _list_rules(options.form)
    stdout_option = "--json" if options.form == "json" else None
    outputs = outputs_from_options(options, "steno check", stdout_option)
    policy = _load_policy(options, outputs.is_requested)
    by_verdict = outputs.is_requested and not policy.rules and not policy.across
    results = [
        CheckResult(name, redact_report(facts.report), _check(policy, facts, by_verdict))
        for name, facts in _iter_facts(parser, options, policy)
    ]
    if not results:
        is_everywhere = options.all or _names_runs(options)
        where = "" if is_everywhere else " in this folder (of all folders: --all)"
        raise StenoError(f"no runs to check{where}; see: steno runs")
    reports = [result.report for result in results]
    across = policy.check_across(reports)
    if options.save_baseline is not None:
        path = save_baseline(options.save_baseline, summarize(reports))
        print_error(f"baseline of {len(reports)} runs saved: {path}")
    if options.form == "json":
        print_json(_as_json(results, across))
    elif not outputs.uses_stdout:
        print_lines(view.check_page(results, across, detect_style()))
    outputs.write(results, across)
    is_broken = bool(across) or not all(result.ok for result in results)
    return EXIT_FAILED if is_broken else 0


def _build_parser() -> CommandParser:
    parser = CommandParser("check", "Check runs against the rules of a policy.", EXAMPLES)
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="file, folder, - (stdin), or run ID; without one, the runs that the filters select",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--policy", metavar="FILE", help=f"TOML file with rules (default: {POLICY_FILE})"
    )
    add_rule_option(rules)
    rules.add_argument("--list-rules", action="store_true", help="list all rules with examples")
    rules.add_argument("--baseline", metavar="NAME", help="compare with a stored baseline")
    rules.add_argument(
        "--save-baseline", metavar="NAME", help="store statistics of the checked runs as a baseline"
    )
    add_output_options(parser)
    parser.add_argument("--agent", metavar="NAME", help=AGENT_HELP)
    parser.add_time_range("number of runs in the ledger, or time span: 20, 24h, 7d, 2w")
    parser.add_filters("project", "model")
    parser.add_origin_filters()
    parser.add_all_folders()
    parser.add_json()
    parser.add_ledger()
    return parser


def _load_policy(options: argparse.Namespace, is_output_requested: bool) -> Policy:
    path = options.policy
    has_rules = options.rule or options.baseline or options.save_baseline
    if path is None and not has_rules and Path(POLICY_FILE).is_file():
        path = POLICY_FILE
    if path is None and not has_rules and not is_output_requested:
        raise StenoError(
            f"no rules: use --policy FILE, --rule NAME=VALUE, or create {POLICY_FILE}; "
            "see: steno check --list-rules"
        )
    return build_policy(path, options.rule, options.baseline)


def _check(policy: Policy, facts: RunFacts, by_verdict: bool) -> list[RuleFinding]:
    """What a run breaks; without rules, its verdict if it is not `ok`."""
    if not by_verdict or facts.report.ok:
        return policy.check(facts)
    from ..export.results import verdict_finding

    return [verdict_finding(facts.report)]


# -- sources -------------------------------------------------------------------------------------


def _iter_facts(
    parser: CommandParser, options: argparse.Namespace, policy: Policy
) -> Iterator[tuple[str, RunFacts]]:
    """The runs to check, each with its name."""
    if not options.sources:
        if not _has_filter(options):
            parser.error("nothing to check: name a file or run, or select runs, such as --last 1")
        yield from _selected_runs(options, policy)
    agent = agents.get_agent(options.agent)
    for name in options.sources:
        if name == "-":
            recording = open_recording(stdin_bytes(), STDIN_NAME)
            yield (
                name,
                read_facts(recording, agent=agent, price=price, with_patch=policy.needs("patch")),
            )
        elif ID_PATTERN.fullmatch(name) and not os.path.lexists(name):
            yield _named_run(name, options, policy)
        else:
            skipped: list[Path] = []
            paths = find_recordings(Path(name), skipped)
            if skipped:
                print_error(skipped_message(skipped))
            for path in paths:
                yield (
                    str(path),
                    read_facts(
                        open_path(path),
                        agent=agent,
                        price=price,
                        with_patch=policy.needs("patch"),
                    ),
                )


def _has_filter(options: argparse.Namespace) -> bool:
    names = ("last", "since", "until", "tag", *NAME_FILTERS)
    return any(getattr(options, name, None) is not None for name in names)


def _names_runs(options: argparse.Namespace) -> bool:
    """Whether a filter says of what the runs are; a time range alone means this folder."""
    return any(getattr(options, name, None) is not None for name in ("tag", *NAME_FILTERS))


def _selected_runs(options: argparse.Namespace, policy: Policy) -> Iterator[tuple[str, RunFacts]]:
    store = open_updated_ledger(options)
    limit = pop_row_limit(options) if options.last is not None else None
    _, span = time_range_from_options(options)
    where = parse_filters(store, options, span).runs_where()
    if not options.all and not _names_runs(options):
        where.add_all(this_folder())
    ids = queries.list_run_ids(store, where, limit)
    prefixes = run_queries.short_ids(store, "runs", ids)
    for facts in _stored_runs(store, ids, policy):
        run_id = facts.report.run_id or ""
        yield prefixes.get(run_id, run_id), facts


def _named_run(name: str, options: argparse.Namespace, policy: Policy) -> tuple[str, RunFacts]:
    check_named_ledger(options.ledger)
    if not ledger_exists(options.ledger):
        raise StenoError(f"{name}: no such file, and there is no ledger yet")
    store = open_updated_ledger(options)
    match = run_queries.find_by_prefix(store, name)
    if match is None or match.table != "runs":
        raise StenoError(f"{name}: no such file, and no such run in the ledger; see: steno runs")
    for facts in _stored_runs(store, [match.id], policy):
        return name, facts
    raise StenoError(f"{name}: it has no report; it may still be active")


def _stored_runs(store: Store, ids: list[str], policy: Policy) -> Iterator[RunFacts]:
    """Runs of the ledger; one with a rule about changed lines is read from its recording."""
    needs_patch = policy.needs("patch")
    for stored in queries.iter_facts(store, ids, policy.needs("calls")):
        source = stored.report.source
        if needs_patch and source is not None and Path(source).exists():
            yield read_facts(open_path(Path(source)), price=price, with_patch=True)
        else:
            yield RunFacts(stored.report, [_call_fact(call) for call in stored.calls])


def _call_fact(call: queries.StoredCall) -> CallFact:
    return CallFact(
        id=call.call,
        name=call.name,
        kind=call.kind,
        command=call.target if call.kind == "shell" else None,
        signature=f"{call.name}:{call.target}",
        ok=call.ok,
        denied=call.denied,
    )


# -- output --------------------------------------------------------------------------------------


def _as_json(results: list[CheckResult], across: list[RuleFinding]) -> bytes:
    runs: list[dict[str, Any]] = [
        {
            "source": result.name,
            "run_id": result.report.run_id,
            "verdict": result.report.verdict,
            "reason": result.report.reason,
            "cost_usd": result.report.cost.usd,
            "ok": result.ok,
            "findings": result.findings,
        }
        for result in results
    ]
    ok = not across and all(result.ok for result in results)
    return msgspec.json.encode({"schema": SCHEMA, "ok": ok, "runs": runs, "across": across})


def _list_rules(form: str | None) -> int:
    rules = [(name, rule.summary, rule.example) for name, rule in RULES.items()]
    rules += [(f"across.{name}", rule.summary, rule.example) for name, rule in ACROSS_RULES.items()]
    if form == "json":
        keys = ("rule", "checks", "example")
        rows = [dict(zip(keys, rule, strict=True)) for rule in rules]
        print_json(msgspec.json.encode({"rows": rows, "total": len(rows)}))
    else:
        print_lines(view.rules_table(rules, detect_style()))
    return 0
