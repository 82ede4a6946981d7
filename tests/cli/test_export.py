"""`steno export` and `steno show --transcript` as commands."""

import csv
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steno.installation import extra_command
from tests.golden import ROOT
from tests.support.scripted_place import Place, done_well

DENIED = ROOT / "claude" / "2.1.325" / "permission_denied"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.plan({"out": done_well()})
    return place


def test_a_run_of_the_ledger_in_every_format(place: Place) -> None:
    """The prompt comes from the recording; the format from the name of the file."""
    assert place.steno("run", "Fix the bug.").returncode == 0
    rows = json.loads(place.steno("runs", "--json").stdout)["rows"]
    run_id = rows[0]["run_id"]
    for name in ("run.html", "run.md", "run.json", "run.ndjson"):
        path = place.work / name
        done = place.steno("export", run_id[:12], "-o", path)
        assert (done.returncode, done.stderr) == (0, f"steno: wrote {path}\n".encode())
        assert "Fix the bug." in path.read_text("utf-8")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert json.loads((place.work / "run.json").read_text())["report"]["run_id"] == run_id
    shown = place.steno("show", "--transcript", run_id[:12])
    assert b"  1 prompt" in shown.stdout
    assert shown.returncode == 0


def test_a_recording_folder_of_the_ledger_is_read_with_its_transcripts(place: Place) -> None:
    """Copilot's stream has no tokens, its session file has: no view may lose them."""
    place.steno("ledger", "import", ROOT / "copilot" / "1.0.102" / "tools_kept")
    run_id = json.loads(place.steno("runs", "--json", "--no-import").stdout)["rows"][0]["run_id"]
    for words in (["show"], ["show", "--prices"]):
        lines = place.steno(*words, run_id).stdout.decode().splitlines()
        assert "tokens     36,260 total · cache hit rate 88.9 %" in lines
        assert "cost       $0.0115 computed from the price table" in lines
    page = place.steno("export", run_id, "--format", "md").stdout.decode()
    assert "- cost: $0.0115 (computed from the price table)" in page.splitlines()


def test_lists_of_runs(place: Place) -> None:
    """CSV and Parquet have the same runs, with the filters of `steno runs`."""
    from pyarrow import BufferReader, parquet

    place.steno("ledger", "import", DENIED, DENIED.parent / "multi_tool_edit")
    table = place.steno("export", "--format", "csv", "--no-import").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert {row["verdict"] for row in rows} == {"permission", "success"}
    data = place.steno("export", "--format", "parquet", "--no-import").stdout
    columns = parquet.read_table(BufferReader(data))
    assert columns.column("run_id").to_pylist() == [row["run_id"] for row in rows]
    assert str(columns.schema.field("started_at").type) == "timestamp[ms, tz=UTC]"
    assert str(columns.schema.field("tokens_total").type) == "int64"
    assert columns.column("cost_usd").to_pylist() == [float(row["cost_usd"]) for row in rows]
    failed = place.steno("export", "--format", "csv", "--verdict", "permission", "--no-import")
    assert failed.stdout.decode().count("\r\n") == 2


def test_the_columns_of_a_list_do_not_depend_on_its_runs(place: Place) -> None:
    """Files of two days have one schema, also with figures unknown in all runs or without runs."""
    from pyarrow import BufferReader, parquet

    def export(*words: str | Path) -> tuple[list[str], Any]:
        table = place.steno("export", "--format", "csv", "--no-import", *words).stdout.decode()
        data = place.steno("export", "--format", "parquet", "--no-import", *words).stdout
        return table.splitlines()[0].split(","), parquet.read_schema(BufferReader(data))

    place.steno("ledger", "import", DENIED, ROOT / "copilot" / "1.0.102" / "invalid_flag")
    names, schema = export("--agent", "claude")
    assert names == schema.names
    for words in (["--agent", "copilot"], ["--agent", "claude", "--verdict", "auth"]):
        assert export(*words) == (names, schema)
    types = {name: str(schema.field(name).type) for name in names}
    assert {types[name] for name in ("tokens_input", "exit_code", "context_peak")} == {"int64"}
    assert (types["cost_usd"], types["ok"], types["error"]) == ("double", "bool", "string")
    assert types["ended_at"] == "timestamp[ms, tz=UTC]"
    listed = place.steno("runs", "--csv", "--no-import", "--verdict", "auth").stdout.decode()
    assert listed.splitlines() == [",".join(names)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "html"], "--format html needs SOURCE; csv and parquet export lists"),
        ([DENIED, "--format", "csv"], "--format csv exports a list of runs and takes no SOURCE"),
        ([DENIED, "--failed"], "--failed selects runs of a list and takes no SOURCE"),
        ([DENIED, "-o", ""], "-o: empty file name; - is stdout"),
        ([DENIED, "--full", "--format", "json"], "--full is for html and md: json is never cut"),
    ],
)
def test_wrong_use(place: Place, words: list[str | Path], message: str) -> None:
    done = place.steno("export", *words)
    expected = f"steno: {message}; see: steno export --help\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", expected)


def test_a_file_that_cannot_be_written(place: Place) -> None:
    done = place.steno("export", DENIED, "-o", place.work / "missing" / "run.html")
    assert done.returncode == 2
    assert done.stderr.decode().endswith("run.html: cannot write: No such file or directory\n")


def test_parquet_without_pyarrow(place: Place) -> None:
    """The message names the extra."""
    code = "import sys; sys.modules['pyarrow'] = None; from steno.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "export", "--format", "parquet", "--no-import"],
        env={**os.environ, "XDG_DATA_HOME": str(place.folder / "empty")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert extra_command("parquet") in done.stderr.decode()


def test_other_commands_load_no_templates() -> None:
    """jinja2, markdown-it-py and pyarrow are loaded by the formats that need them."""
    code = (
        "import sys; from steno.cli import main; main(); "
        "print(sorted({n.split('.')[0] for n in sys.modules} & "
        "{'jinja2', 'markdown_it', 'pyarrow', 'markupsafe'}), file=sys.stderr)"
    )
    for words in (["show"], ["show", "--transcript"], ["export", "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, str(DENIED)], capture_output=True, check=True
        )
        assert done.stderr == b"[]\n", words


def in_terminal(words: list[str], env: dict[str, str]) -> bytes:
    """What a command prints to a terminal."""
    import pty

    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "steno", *words],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
        env={**os.environ, **env},
    )
    os.close(other)
    output = b""
    try:
        while data := os.read(main, 1 << 16):
            output += data
    except OSError:  # closed by the last program that used it
        pass
    finally:
        os.close(main)
    assert process.wait(60) == 0
    return output


def test_the_pager_gets_the_transcript_on_a_terminal(tmp_path: Path) -> None:
    """A pager that quits early, one that does not exist, and none at all."""
    words = ["show", "--transcript", str(DENIED)]
    kept = tmp_path / "kept"
    env = {"STENO_PAGER": f"tee {kept}", "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": ""}
    shown = in_terminal(words, env)
    assert b"\x1b[1;33mWrite\x1b[0m" in shown
    assert kept.read_bytes() == shown.replace(b"\r\n", b"\n")
    assert in_terminal(words, {**env, "STENO_PAGER": "head -n 1"}).count(b"\n") == 1
    for pager in ("no-such-pager", "cat", ""):
        assert in_terminal(words, {**env, "STENO_PAGER": pager}) == shown
    plain = in_terminal(words, {**env, "STENO_PAGER": "cat", "NO_COLOR": "1"})
    assert b"\x1b" not in plain
    assert len(plain) < len(shown)
