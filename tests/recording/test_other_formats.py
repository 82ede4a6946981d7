"""What other programs print and store is refused, and never another agent's run (A1).

`tests/other_formats` has the lines of such formats, reduced to what identifies them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.errors import SourceError
from steno.ledger.importer import import_sources
from steno.ledger.protocol import Store
from steno.ledger.store import open_ledger
from steno.recording.open import find_recordings
from tests.support.claude_lines import dump, init, stream, worked

ROOT = Path(__file__).parents[1] / "other_formats"
LIKE_CLAUDE = "another program's output in the format of Claude Code"
EXPECTED = {
    "acp.jsonl": "an ACP recording",
    "amp.jsonl": LIKE_CLAUDE,
    "anthropic.json": "an answer of a model's API",
    "api.json": "JSON of an unknown format, with fields 'session_id, response, error'",
    "chat.jsonl": "messages of a chat",
    "cline.jsonl": "output of Cline",
    "copilot-session.json": "a session of Copilot before 1.0",
    "cursor.jsonl": LIKE_CLAUDE,
    "dataset.jsonl": "JSON of an unknown format, with type 'user'",
    "droid.jsonl": LIKE_CLAUDE,
    "grok-messages.jsonl": LIKE_CLAUDE,
    "grok.json": "output of grok",
    "grok.jsonl": "output of grok",
    "journal.jsonl": "the journal of a workflow",
    "json-rpc.jsonl": "JSON-RPC messages",
    "kimi-wire.jsonl": "output or a session of Kimi Code",
    "kimi.jsonl": "output or a session of Kimi Code",
    "log.jsonl": "JSON of an unknown format, with type 'error'",
    "openai.json": "an answer of a model's API",
    "opencode-export.json": "an export of OpenCode",
    "pi.jsonl": "output or a session of pi",
    "qwen-chat.json": "a chat of Qwen Code up to 0.2",
    "traces.jsonl": "JSON of an unknown format, with type 'system'",
    "vibe.json": "output of Mistral Vibe",
    "vibe.jsonl": "output of Mistral Vibe",
}


def test_every_format_is_listed() -> None:
    assert sorted(path.name for path in ROOT.iterdir()) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a1_a_named_file_is_refused(name: str) -> None:
    with pytest.raises(SourceError) as caught:
        steno.read(ROOT / name)
    message = str(caught.value)
    assert message.startswith(f"{ROOT / name}: not a recording; expected ")
    assert message.endswith(f"; found {EXPECTED[name]}")


@pytest.mark.parametrize("name", EXPECTED)
def test_a1_a_pipe_is_nobodys_run(name: str) -> None:
    """Its objects are counted as unknown; nothing is read into them."""
    report = steno.read((ROOT / name).read_bytes())
    assert (report.agent, report.verdict, report.tokens.total, report.tools) == (
        *(None, "no_result", None),
        [],
    )
    assert report.lines.unknown == report.lines.read > 0
    assert report.lines.malformed == 0


@pytest.mark.parametrize("name", EXPECTED)
def test_a1_a_run_after_it_is_read(name: str) -> None:
    """As with `cat`; what another program printed before takes nothing from it."""
    run = stream(*worked())
    report = steno.read((ROOT / name).read_bytes() + run)
    alone = steno.read(run)
    assert (report.agent, report.verdict, report.tokens) == ("claude", "success", alone.tokens)


def test_a1_a_folder_reads_what_is_known(tmp_path: Path) -> None:
    for name in EXPECTED:
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "run.jsonl").write_bytes(stream(*worked()))
    skipped: list[Path] = []
    assert find_recordings(tmp_path, skipped) == [tmp_path / "run.jsonl"]
    assert [path.name for path in skipped] == sorted(EXPECTED)


def test_a1_an_import_books_only_what_is_known(ledger_url: str, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run.jsonl"
    run.parent.mkdir()
    run.write_bytes(stream(*worked()))
    store: Store = open_ledger(ledger_url)
    done = import_sources(store, [str(ROOT), str(run.parent)])
    assert (done.runs, done.unknown, done.skipped) == (
        *(1, len(EXPECTED)),
        [str(ROOT / name) for name in sorted(EXPECTED)],
    )
    assert store.query("SELECT DISTINCT agent FROM runs") == [("claude",)]
    named = import_sources(store, [str(ROOT / name) for name in EXPECTED])
    assert (named.files, named.runs, len(named.troubles)) == (0, 0, len(EXPECTED))
    store.close()


def test_a1_tools_of_mcp_servers_alone_are_no_other_program() -> None:
    line = init(tools=["mcp__x__run"])
    del line["claude_code_version"]
    assert steno.read(dump(line)).agent == "claude"


def test_a1_names_that_are_no_text_do_not_raise() -> None:
    values: list[Any] = [[1, None], [[]], {}, "Bash", None]
    for tools in values:
        line = init(tools=tools)
        del line["claude_code_version"]
        steno.read(stream(line, *worked()[1:]))
    names: list[Any] = [[], {}, 1]
    blocks = [{"type": "tool_use", "name": name} for name in names]
    odd = {"type": "assistant", "session_id": "s", "message": {"content": blocks}}
    assert steno.read(json.dumps(odd).encode()).agent is None
