"""Options of `steno fleet`: limits, and what holds for all tasks of a command."""

import argparse
import os
import re
from pathlib import Path

from ..config import SETTINGS_BY_NAME, load_settings
from ..errors import StenoError
from ..fleet.task_file import COMMAND_SETTINGS, RENAMED_SETTINGS, TaskDefaults
from ..units import NANO_PER_USD
from .options import CommandParser, duration_type, option_name
from .run_options import add_settings

_RATE = re.compile(r"(\d+)/(?:(\d+)?(s|sec|min|m|h|hour))")
_RATE_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0}
OFF = "off"  # removes a limit
# Settings that are options of these commands under their own names.
TASK_SETTINGS_WITHOUT = (*COMMAND_SETTINGS, "feed")


def parse_rate(text: str) -> tuple[int, float]:
    """An argparse type: 30/min, 5/s, 100/10s; off: zero."""
    if text == OFF:
        return 0, 0.0
    match = _RATE.fullmatch(text)
    if match is None or int(match[1]) < 1 or int(match[2] or 1) < 1:
        raise argparse.ArgumentTypeError(f"expected a rate such as 30/min or 5/s, found {text!r}")
    return int(match[1]), float(match[2] or 1) * _RATE_UNITS[match[3]]


def parse_limit(text: str) -> tuple[str, int]:
    """An argparse type: NAME=N; NAME=off: zero."""
    name, _, number = text.rpartition("=")
    if name and number == OFF:
        return name, 0
    if not name or not number.isdecimal() or not int(number):
        raise argparse.ArgumentTypeError(f"expected NAME=N or NAME=off, found {text!r}")
    return name, int(number)


def parse_budget(text: str) -> int:
    """An argparse type: dollars, as nano-dollars; off: zero."""
    if text == OFF:
        return 0
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e9:
        raise argparse.ArgumentTypeError(f"expected dollars above 0, found {text!r}")
    return round(amount * NANO_PER_USD)


def parse_lease(text: str) -> float:
    """An argparse type: 30, 2m. A worker without a lease could never be taken over from."""
    seconds = duration_type(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"expected a duration such as 30 or 2m, found {text!r}")
    return seconds


def parse_batch_name(text: str) -> str:
    """An argparse type: one line of text without slash, since BATCH/NAME is a task."""
    from ..config.values import parse_label

    try:
        if "/" not in text:
            return parse_label(text)
        expected = "a name without /"
    except ValueError as error:
        expected = str(error)
    raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")


def add_limits(parser: CommandParser) -> None:
    group = parser.add_argument_group("limits (of the whole fleet)")
    group.add_argument(
        "--rate", type=parse_rate, metavar="N/TIME", help="starts: 30/min, 5/s; off: no limit"
    )
    group.add_argument(
        "--budget",
        type=parse_budget,
        metavar="USD",
        help="stop starting tasks at this cost; off: no limit",
    )
    for kind in ("agent", "model"):
        group.add_argument(
            f"--{kind}-limit",
            type=parse_limit,
            action="append",
            default=[],
            metavar="NAME=N",
            help=f"tasks with this {kind} at once, of all batches, until NAME=off (repeatable)",
        )


def add_task_options(parser: CommandParser) -> None:
    group = parser.add_argument_group("tasks")
    group.add_argument("--cwd", metavar="DIR", help="folder to work in (default: the current one)")
    group.add_argument("--worktree", action="store_true", help="a new git worktree for each task")
    group.add_argument("--policy", metavar="FILE", help="rules to check each task against")
    group.add_argument(
        "--tag", action="append", metavar="K=V", help="label of the tasks (repeatable)"
    )
    group.add_argument(
        "--retry",
        dest="resume_on",
        action="append",
        metavar="VERDICT",
        help="verdicts after which a task is tried again, up to --attempts (repeatable)",
    )
    add_settings(parser, (*TASK_SETTINGS_WITHOUT, "resume_on"))


def setting_option(name: str) -> str:
    """The option of these commands for a setting."""
    return option_name(RENAMED_SETTINGS.get(name, name))


def task_defaults(options: argparse.Namespace) -> TaskDefaults:
    """What the command line sets for all tasks; checked."""
    cwd = os.path.abspath(options.cwd or Path.cwd())  # noqa: PTH100  # links stay as they are
    if not os.path.isdir(cwd):  # noqa: PTH112
        raise StenoError(f"--cwd {options.cwd}: not a folder")
    values = {
        name: getattr(options, name)
        for name in SETTINGS_BY_NAME
        if name not in TASK_SETTINGS_WITHOUT and getattr(options, name, None) is not None
    }
    if options.tag is not None:
        values["tag"] = options.tag
    settings = load_settings(values, {}, Path(cwd), setting_option)
    if options.policy is not None:
        from ..checks.monitor import load_monitor

        load_monitor(options.policy)
    return TaskDefaults(
        cwd=cwd,
        options={name: settings[name] for name in values if name != "tag"},
        worktree=options.worktree,
        policy=None if options.policy is None else str(Path(options.policy).absolute()),
        tags=settings["tag"] if options.tag is not None else {},
    )
