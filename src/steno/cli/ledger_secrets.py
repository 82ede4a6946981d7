"""`steno ledger secrets`: find secrets in the ledger and its recordings, and mask them."""

import argparse
from collections import Counter
from shlex import quote

from ..config.files import list_recordings
from ..ledger.queries import secrets as queries
from ..views.formatting import clean, format_count
from ..views.table import Column, render_table
from .commands import EXIT_FAILED
from .options import CommandParser
from .query_options import open_ledger_for_reading, write_result
from .terminal import StepProgress, detect_style

EXAMPLES = """examples:
  steno ledger secrets          list secrets in the ledger and in recordings
  steno ledger secrets --mask   mask them in the ledger
  steno ledger secrets --json

A secret is never printed: only its kind, where it is, and at most its first 4 characters.
Recordings contain the agent's output unchanged and are never rewritten: delete those you don't
need. The exit code is 1 if secrets remain, 0 if not.
"""


def run(args: list[str]) -> int:
    """Run the command and return its exit code."""
    options = _parse_args(args)
    store = open_ledger_for_reading(options.ledger)
    try:
        with StepProgress("rows") as rows:
            found = queries.find_in_ledger(store, options.mask, rows.update)
        backups = queries.backups(store)
        paths = queries.recordings_of(store)
    finally:
        store.close()
    if not options.ledger:
        paths = {**dict.fromkeys(list_recordings()), **paths}
    with StepProgress("recordings") as files:
        in_recordings = queries.find_in_recordings(paths, files.update)
    everything = [*found, *in_recordings]
    write_result(
        options.form,
        lambda: _render(found, in_recordings, backups, options.mask),
        lambda: everything,
        total={
            "ledger": len(found),
            "recordings": len(in_recordings),
            "masked": sum(secret.masked for secret in found),
        },
        extra={"recordings": len(paths), "backups": backups},
        leading_columns=queries.FoundSecret.__struct_fields__,
    )
    return EXIT_FAILED if any(not secret.masked for secret in everything) else 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger secrets", "Find secrets in the ledger and its recordings.", EXAMPLES
    )
    parser.add_argument(
        "--mask", action="store_true", help="replace the secrets in the ledger with [redacted]"
    )
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)


def _render(
    found: list[queries.FoundSecret],
    in_recordings: list[queries.FoundSecret],
    backups: list[str],
    is_masked: bool,
) -> list[str]:
    style = detect_style()
    if not found and not in_recordings:
        return ["No secrets found in the ledger and its recordings."]
    rows = [
        [
            secret.kind,
            f"{secret.start}…",
            f"{secret.table}.{secret.column}" if secret.file is None else secret.file,
            (secret.row if secret.file is None else str(secret.line)) or "",
            secret.run or secret.session or "",
        ]
        for secret in (*found, *in_recordings)
    ]
    columns = (
        Column("kind"),
        Column("starts"),
        Column("where", can_truncate=True),
        Column("row or line"),
        Column("run or session", can_truncate=True),
    )
    kinds = Counter(secret.kind for secret in (*found, *in_recordings))
    summary = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    lines = [*render_table(style, columns, rows), ""]
    for text in (summary, *_advice(found, is_masked)):
        lines += style.wrap(text)
    files = list(dict.fromkeys(secret.file for secret in in_recordings if secret.file))
    if files:
        text = (
            f"{format_count(len(in_recordings), 'secret')} in recordings, which steno never "
            "changes. Delete those you don't need; the ledger keeps their reports:"
        )
        lines += [*style.wrap(text), *(f"  rm {quote(clean(file))}" for file in files)]
    if backups:
        lines += [
            "Backups were not examined. Delete old ones:",
            *(f"  {clean(name)}" for name in backups),
        ]
    return lines


def _advice(found: list[queries.FoundSecret], is_masked: bool) -> list[str]:
    """What was done, and what to do."""
    texts = ["Revoke these secrets: they may be known to everyone who could read the files."]
    if found and is_masked:
        texts.append(f"Masked {format_count(len(found), 'secret')} in the ledger.")
    elif found:
        texts.append("To mask those in the ledger: steno ledger secrets --mask")
    return texts
