"""Exit codes of the commands, except those of verdicts (`steno.report.EXIT_CODES`)."""

EXIT_FAILED = 1  # doctor: a problem; sync, watch, logs: a file was not copied, a command failed
EXIT_USAGE_ERROR = 2  # wrong use, or a source that could not be read
EXIT_BUDGET_EXCEEDED = 3  # budget check
EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
EXIT_WRITE_FAILED = 74  # EX_IOERR of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE
