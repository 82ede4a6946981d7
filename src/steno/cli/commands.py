"""The commands in their groups, the text of `steno --help`, and exit codes."""

# Exit codes of verdicts are in `steno.report.EXIT_CODES`.
EXIT_FAILED = 1  # doctor: a problem; sync, watch, logs: a file was not copied, a command failed
EXIT_USAGE_ERROR = 2  # wrong use, or a source that could not be read
EXIT_BUDGET_EXCEEDED = 3  # budget check
EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
EXIT_WRITE_FAILED = 74  # EX_IOERR of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"  # set in GitHub Actions: file for a summary in Markdown
# Set by a system that executes commands in what we print, see `ci_log`.
CI_VARIABLES = frozenset((STEP_SUMMARY, "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"))


GROUPS = {
    "Run": {
        "run": "run an agent and report how it ended",
        "repeat": "run the same task several times, and compare",
        "watch": "copy an agent's output to stdout and report on it",
        "ps": "list active runs",
        "top": "show active and recent runs, limits and budgets full-screen",
        "logs": "print the log of a run, or follow it",
        "send": "send a message to an active run",
        "stop": "stop an active run",
        "replay": "print a recorded run again, with its timing and exit code",
    },
    "Fleet": {
        "fleet": "run many tasks: batches, workers, results",
        "team": "agents side by side: messages, file claims, roster, permission requests",
        "mcp": "serve run status, messages, claims and search to an agent (MCP)",
    },
    "Inspect": {
        "show": "show the report of a recording, run or session",
        "runs": "list runs in the ledger",
        "sessions": "list agent sessions in the ledger",
        "diff": "show the files a run changed",
        "search": "search prompts and answers",
        "check": "check runs against the rules of a policy",
        "compare": "compare two runs or sessions",
        "trend": "plot success rate, cost, turns and time of a task over time",
        "context": "plot the context usage of a session",
        "export": "write a conversation or a list of runs to a file",
        "serve": "show runs, cost and limits in a browser",
    },
    "Spend": {
        "usage": "report tokens and cost by day, project, model or agent",
        "budget": "set spending limits and check them",
        "limits": "show how much of the usage limits is used, and when they reset",
        "statusline": "print a status line for Claude Code",
    },
    "Data": {
        "ledger": "manage the ledger: import, prune, rebuild, query, find secrets",
        "sync": "copy a folder's files to other destinations",
    },
    "Setup": {
        "doctor": "check this machine's setup and suggest fixes",
        "config": "show settings and where they come from",
        "hooks": "record Claude Code's sessions as they happen, and refuse calls",
        "completion": "print a shell completion script",
        "demo": "replay two recorded runs: progress, summary, usage",
        "help": "show help for steno or a command",
        "version": "show the version",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
LEDGER_COMMANDS = {
    "import": "import transcripts and recordings",
    "prune": "delete old sessions and keep their totals",
    "rebuild": "rebuild the ledger from its source files",
    "secrets": "find secrets in the ledger and its recordings, and mask them",
    "sql": "run a read-only SQL query",
    "note": "attach a note to a run or session",
}
TEAM_COMMANDS = {
    "say": "send a message to a run, a person, or all",
    "inbox": "read your messages",
    "claim": "claim files, or wait in line for them",
    "release": "release claims",
    "claims": "list claims on files, and who waits for them",
    "roster": "list active runs with their health",
    "requests": "list permission requests of agents",
    "approve": "permit or deny a requested call",
}
FLEET_COMMANDS = {
    "batch": "run the tasks of a file",
    "spawn": "queue one task",
    "worker": "run queued tasks until stopped",
    "status": "show batches, workers and pauses",
    "wait": "wait for tasks",
    "collect": "print the results of tasks as JSON lines",
    "output": "print the answer of a task",
    "pipe": "queue a task with the results of others in its prompt",
    "cancel": "cancel tasks",
    "retry": "start tasks again that failed",
    "prune": "delete finished tasks and their results",
}
# Commands with commands of their own.
SUBCOMMANDS = {"ledger": LEDGER_COMMANDS, "fleet": FLEET_COMMANDS, "team": TEAM_COMMANDS}
# Commands handled by the dispatcher itself, without a module of their own.
BUILT_IN_COMMANDS = ("help", "version")
# Commands that start other programs, and so need SIGCHLD at its default.
SPAWNING_COMMANDS = (
    *("run", "repeat", "watch", "logs", "sync", "diff", "doctor", "demo", "show", "fleet"),
)
# Commands that load neither msgspec nor argparse: they run often.
LIGHT_COMMANDS = ("statusline",)
HELP_TEMPLATE = """usage: steno COMMAND [OPTIONS]

Run headless coding agents, or read what they printed, and report what really happened.

{commands}

Options:
  -h, --help  show this help
  --version   show the version
  --debug     show the traceback of an error (also: STENO_DEBUG=1)

The ledger is a local database of runs and sessions.
Run `steno help COMMAND` for the options and examples of a command.
"""


def help_text() -> str:
    """The text of `steno --help`."""
    groups = [
        "\n".join([f"{title}:", *(f"  {name:10}  {text}" for name, text in group.items())])
        for title, group in GROUPS.items()
    ]
    return HELP_TEMPLATE.format(commands="\n\n".join(groups))
