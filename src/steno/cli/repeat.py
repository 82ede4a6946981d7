"""`steno repeat`: runs the same task several times and summarises the runs."""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ..checks.across import save_baseline, statistics_json
from ..checks.policy import Policy, build_policy
from ..checks.repeat import TAG, RepeatedRun, RepeatResult, Repetition
from ..config import SETTINGS_BY_NAME
from ..report import EXIT_CODES
from ..views import repeat as view
from ..views.formatting import format_duration
from ..views.live import LiveDisplay
from .commands import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE_ERROR
from .options import CommandParser, add_rule_option, number_type, option_name
from .run import RUN_ONLY_OPTIONS
from .run_options import parse_args as parse_run_args
from .run_options import read_prompt
from .terminal import STOP_SIGNALS, detect_style, print_error, print_json, print_lines

SCHEMA = "steno.repeat/1"
MAX_RUNS = 10_000
MAX_JOBS = 100
EXAMPLES = """examples:
  steno repeat 10 -- --allow Edit "fix the failing test"
  steno repeat 10 --jobs 2 --save-baseline main -- --name parser "rewrite the parser"
  steno repeat 10 --baseline main -- --name parser "rewrite the parser"
  steno repeat 20 --rule min_success=0.8 --rule max_cost_spread=0.5 -- "fix the failing test"
  steno repeat 5 --policy ci.toml --json -- --agent codex "fix the failing test"
  steno repeat 5 --in-place -- --model small "which test fails?"

Options of `steno run` and the prompt follow after `--`. Each run works in a new git worktree of
HEAD, and has the tag repeat=ID (see: steno runs --tag repeat=ID). A run succeeds if its report is
ok and it breaks no rule of the policy.

The exit code is 0 if the rules over all runs hold, 1 if one is broken, 2 for wrong use. Without
min_success and a baseline, every run must succeed. Ctrl-C stops the active runs and summarises
those that finished; the exit code is 130 then, and no baseline is stored.
"""
# Options of `steno run` that have no meaning here, and what to do instead.
EXCLUDED_OPTIONS = {
    "form": "--json and --raw: put --json before --",
    "policy": "--policy: put it before --",
    "worktree": "--worktree: each run has its own; use --in-place for none",
    "resume": "--resume: each run starts a new session",
    "fork": "--fork: each run starts a new session",
    "continue_": "--continue: each run starts a new session",
    "session_id": "--session-id: each run starts a new session",
    "steer": "--steer: no messages can be sent to repeated runs",
    "sync": "--sync: not available for repeated runs",
    "on": "--on: not available for repeated runs",
    "once": "--once: not available for repeated runs",
}


def run(args: list[str]) -> int:
    """Run `steno repeat` and return its exit code."""
    parser = _build_parser()
    end = args.index("--") if "--" in args else len(args)
    options = parser.parse_args(args[:end])
    if end == len(args):
        parser.error("expected the options and the prompt of steno run after --")
    run_options = parse_run_args(args[end + 1 :])
    for name, text in EXCLUDED_OPTIONS.items():
        if getattr(run_options, name) not in (None, False, []):
            parser.error(text)
    policy = _build_policy(options)
    values = {name: getattr(run_options, name) for name in (*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS)}
    repetition = Repetition(
        read_prompt(run_options),
        {name: value for name, value in values.items() if value is not None},
        count=options.count,
        jobs=options.jobs,
        policy=policy,
        in_place=options.in_place,
        option_label=option_name,
    )
    RepeatDisplay(repetition, options.quiet).run()
    return _finish(repetition, options)


def _build_parser() -> CommandParser:
    parser = CommandParser("repeat", "Run the same task several times, and compare.", EXAMPLES)
    parser.usage = "steno repeat N [OPTIONS] -- [RUN OPTIONS] [PROMPT]"
    parser.add_argument(
        "count",
        metavar="N",
        type=number_type(f"a number of runs from 1 to {MAX_RUNS:,}", 1, MAX_RUNS, whole=True),
        help="number of runs",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        default=1,
        type=number_type(f"a number from 1 to {MAX_JOBS}", 1, MAX_JOBS, whole=True),
        help="runs at the same time (default: 1)",
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="run in the folder itself, without worktrees: for tasks that change no files",
    )
    parser.add_argument(
        "--remove-worktrees",
        action="store_true",
        help="delete the worktrees and their branches at the end",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument("--policy", metavar="FILE", help="TOML file with rules for each run and all")
    add_rule_option(rules)
    rules.add_argument("--baseline", metavar="NAME", help="compare with a stored baseline")
    rules.add_argument("--save-baseline", metavar="NAME", help="store the statistics as a baseline")
    parser.add_argument("--quiet", action="store_true", help="print only the summary and errors")
    parser.add_json()
    parser.add_debug()
    return parser


def _build_policy(options: argparse.Namespace) -> Policy:
    policy = build_policy(options.policy, options.rule, options.baseline)
    if "min_success" not in policy.across and "baseline" not in policy.across:
        policy.across["min_success"] = 1.0
    return policy


def _finish(repetition: Repetition, options: argparse.Namespace) -> int:
    """Print the summary, and return the exit code."""
    if repetition.problem is not None:
        print_error(repetition.problem)
    if options.remove_worktrees:
        repetition.remove_worktrees()
    result = repetition.result(options.baseline)
    if options.form == "json":
        print_json(_as_json(result))
    elif result.runs:
        print_lines(view.repeat_page(result, detect_style()))
    if repetition.interrupt_count:
        return EXIT_INTERRUPTED
    if options.save_baseline is not None and result.counted:
        path = save_baseline(options.save_baseline, result.statistics)
        print_error(f"baseline of {len(result.counted)} runs saved: {path}")
    if repetition.refusal is not None and not result.runs:
        return EXIT_CODES[repetition.refusal.verdict]
    if repetition.problem is not None:
        return EXIT_USAGE_ERROR
    return 0 if result.ok else EXIT_FAILED


def _as_json(result: RepeatResult) -> bytes:
    runs: list[dict[str, Any]] = [
        {
            "number": run.number,
            "run_id": run.report.run_id,
            "task_id": run.report.task_id,
            "verdict": run.report.verdict,
            "ok": run.report.ok,
            "counted": not run.is_interrupted,
            "error": run.report.error,
            "reason": run.report.reason,
            "cost_usd": run.report.cost.usd,
            "tokens": run.report.tokens.total,
            "turns": run.report.turns,
            "duration_ms": run.report.duration_ms,
            "worktree": run.worktree,
            "findings": run.findings,
        }
        for run in result.runs
    ]
    baseline = {}
    if result.baseline is not None:
        baseline = {"baseline": statistics_json(result.baseline)}
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "id": result.id,
            "tag": f"{TAG}={result.id}",
            "ok": result.ok,
            "requested": result.requested,
            "statistics": statistics_json(result.statistics),
            **baseline,
            "runs": runs,
            "across": result.across,
        }
    )


class RepeatDisplay:
    """Runs a repetition with a line per finished run, a progress line, and signals."""

    def __init__(self, repetition: Repetition, is_quiet: bool) -> None:
        self._repetition = repetition
        self._style = detect_style(sys.stderr)
        self._display = LiveDisplay(self._style, sys.stderr, quiet=is_quiet)
        self._is_live = self._display.terminal_fd >= 0
        self._has_notes = False
        self._started_at = time.monotonic()

    def run(self) -> None:
        with self._handle_signals():
            try:
                self._draw()
                self._repetition.run(self._on_finished, self._draw)
            finally:
                self._clear()
        if self._is_live:
            self._display.print_lines([""])

    def _on_finished(self, run: RepeatedRun) -> None:
        self._clear()
        if not self._has_notes:
            self._has_notes = True
            for note in self._repetition.notes:
                self._display.say(note)
        self._display.print_lines([view.run_line(run, self._repetition.count, self._style)])
        self._draw()

    def _draw(self) -> None:
        if self._is_live:
            repetition = self._repetition
            elapsed = format_duration((time.monotonic() - self._started_at) * 1000)
            done = f"{len(repetition.runs)} of {repetition.count} finished"
            stopping = ", stopping" if repetition.interrupt_count else ""
            text = f"{done}, {repetition.active_count} active, {elapsed}{stopping}"
            sys.stderr.write(f"\r\x1b[Ksteno: {text}")
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """The first signal stops the runs, the second kills them, the third kills steno."""
        old_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number, handler in old_handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._repetition.interrupt()
        if self._repetition.interrupt_count > 1:
            for other in STOP_SIGNALS:
                signal.signal(other, signal.SIG_DFL)
