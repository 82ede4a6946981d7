"""Recordings, whole or truncated, give the report of the run (L1)."""

import json
import stat
from pathlib import Path

import pytest

import steno
from steno.codec.redact import MASK
from steno.recording.format import Header, Record, Recorder, RecordingFile, mark_superseded
from tests.support.claude_lines import (
    assistant,
    ended,
    err,
    failed,
    folder,
    hello,
    init,
    named,
    out,
    plain,
    recorded,
    result,
    spread,
    stop,
    stream,
    tape,
    text,
    worked,
)

TICKS = [
    Record(0.0, "out", b'{"type":"system"}\n'),
    Record(0.5, "err", b"careful\n"),
    Record(0.75, "file", b"created src/a b.py"),
    Record(1.25, "stop", b"timeout", 15),
    Record(2.0, "exit", number=-15),
    Record(None, "exit", number=None),
]

BYTES = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"no newline",
    b"a\nb\r\n",
    b'"\\\x1b[0m',
    "\u2028é".encode(),
    b"\xed\xa0\xbd",
]


# -- record and play -----------------------------------------------------------------------------


def test_l1_what_is_recorded_plays_again(tmp_path: Path) -> None:
    header = Header(
        agent="claude",
        agent_version="2.1.325",
        run_id="r1",
        argv=["claude", "-p"],
        cwd="/srv",
        started_at=1.5,
    )
    played = RecordingFile(tape(tmp_path / "t", *TICKS, header=header))
    assert played.header == header
    assert list(played.records()) == TICKS
    assert played.is_truncated is False


@pytest.mark.parametrize("data", BYTES)
@pytest.mark.parametrize("code", ["out", "err"])
def test_l1_any_bytes_come_back(code: str, data: bytes, tmp_path: Path) -> None:
    assert list(RecordingFile(tape(tmp_path / "t", Record(1.0, code, data))).records()) == [
        Record(1.0, code, data)
    ]


def test_l1_every_byte_value_comes_back(tmp_path: Path) -> None:
    data = bytes(range(256))
    ticks = [out(data), *(out(bytes([value])) for value in range(256))]
    assert list(RecordingFile(tape(tmp_path / "t", *ticks)).records()) == ticks


def test_l1_a_tape_is_lines_of_json(tmp_path: Path) -> None:
    lines = tape(tmp_path / "t", *TICKS, out(b"\xff\n")).read_bytes().split(b"\n")
    assert lines.pop() == b""
    head, *ticks = (json.loads(line) for line in lines)
    assert (head["schema"], head["agent"]) == ("steno.tape/1", "claude")
    assert ticks == [
        [0.0, "out", '{"type":"system"}\n'],
        [0.5, "err", "careful\n"],
        [0.75, "file", "created src/a b.py"],
        [1.25, "stop", {"why": "timeout", "signal": 15}],
        [2.0, "exit", -15],
        [None, "exit", None],
        [None, "out", {"b64": "/wo="}],
        [None, "end", None],
    ]


def test_l1_a_header_names_its_schema_even_when_nothing_else_is_known(tmp_path: Path) -> None:
    path = tmp_path / "t"
    Recorder(path).close()
    assert json.loads(path.read_bytes().splitlines()[0])["schema"] == "steno.tape/1"
    assert RecordingFile(path).header == Header()


def test_l1_a_tape_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tape(tmp_path / "t", *TICKS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_l1_a_second_recorder_never_writes_over_a_tape(tmp_path: Path) -> None:
    path = tape(tmp_path / "t", *TICKS)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        Recorder(path)
    assert path.read_bytes() == before


def test_l1_each_tick_is_on_disk_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with Recorder(path) as recorder:
        recorder.write(TICKS[0])
        open_ = RecordingFile(path)
        assert (list(open_.records()), open_.is_truncated) == ([TICKS[0]], True)


def test_l1_closing_twice_writes_one_end(tmp_path: Path) -> None:
    path = tmp_path / "t"
    recorder = Recorder(path)
    recorder.close()
    recorder.close()
    assert path.read_bytes().count(b'"end"') == 1


def test_r2_no_secret_reaches_the_header(tmp_path: Path) -> None:
    argv = [
        "claude",
        "--api-key",
        "hunter2",
        "sk-ant-api03-abcDEF123456",
        "-H",
        "Authorization: Bearer abcdef123456",
        "TOKEN=hunter2",
    ]
    header = Header(argv=argv)
    path = tape(tmp_path / "t", header=header)
    played = RecordingFile(path).header
    assert played is not None
    assert played.argv == [
        "claude",
        "--api-key",
        MASK,
        MASK,
        "-H",
        f"Authorization: Bearer {MASK}",
        f"TOKEN={MASK}",
    ]
    assert header.argv == argv
    for secret in (b"hunter2", b"sk-ant", b"abcdef123456"):
        assert secret not in path.read_bytes()


# -- cut anywhere --------------------------------------------------------------------------------


def test_l1_a_tape_cut_at_every_byte_still_reads_and_says_so(tmp_path: Path) -> None:
    ticks = [out(stream(*hello())[:700]), err(b"\xffodd"), out(stream(*hello())[700:]), ended(0)]
    whole = tape(tmp_path / "whole", *ticks).read_bytes()
    path = tmp_path / "cut"
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        found, played = steno.read(path), RecordingFile(path)
        seen = list(played.records())
        assert (cut, found.lines.torn, found.complete, played.is_truncated) == (
            cut,
            True,
            False,
            True,
        )
        assert seen == ticks[: len(seen)]
        assert found.verdict in ("no_result", "success")


def test_l1_a_whole_tape_is_not_called_cut(tmp_path: Path) -> None:
    path = tape(tmp_path / "whole", out(stream(*hello())), ended(0))
    played = RecordingFile(path)
    assert len(list(played.records())) == 2
    found = steno.read(path)
    assert (played.is_truncated, found.lines.torn, found.complete, found.verdict) == (
        False,
        False,
        True,
        "success",
    )


@pytest.mark.parametrize(
    ("ticks", "told"),
    [
        ([out(stream(*hello())[:700])], " (recording truncated)"),
        ([out(stream(hello()[0]))], " (recording truncated)"),
        ([out(stream(hello()[0])), ended(0)], ""),
    ],
)
def test_l1_a_tape_that_was_not_closed_says_what_is_true(
    tmp_path: Path, ticks: list[Record], told: str
) -> None:
    """Whoever wrote it was killed: no line of the agent need be cut."""
    path = tmp_path / "cut"
    path.write_bytes(
        b"".join(tape(tmp_path / "whole", *ticks).read_bytes().splitlines(keepends=True)[:-1])
    )
    found = steno.read(path)
    assert (found.error, found.lines.torn) == (f"the stream ended without a result{told}", True)


def test_l1_an_empty_file_is_a_cut_tape(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    played = RecordingFile(path)
    assert (played.header, list(played.records()), played.is_truncated) == (None, [], True)


def test_l1_what_is_damaged_in_the_middle_ends_the_tape_there(tmp_path: Path) -> None:
    lines = tape(tmp_path / "whole", *TICKS).read_bytes().split(b"\n")
    path = tmp_path / "damaged"
    path.write_bytes(b"\n".join([*lines[:3], lines[3][:-5], *lines[4:]]))
    played = RecordingFile(path)
    assert (list(played.records()), played.is_truncated) == (TICKS[:2], True)
    assert steno.read(path).lines.torn is True


# -- the same report -----------------------------------------------------------------------------


def _same(tmp_path: Path, stdout: bytes, code: int | None, stderr: bytes, size: int) -> None:
    recording = folder(tmp_path / "recording", stdout, code, stderr)
    chunks = [out(stdout[at : at + size]) for at in range(0, len(stdout), size)]
    last = [] if code is None else [ended(code)]
    path = tape(tmp_path / f"tape{size}", *chunks, *([err(stderr)] if stderr else []), *last)
    assert plain(steno.read(path)) == plain(steno.read(recording))


RUNS = {
    "hello": (stream(*hello()), 0, b""),
    "worked": (stream(*worked()), 0, b"a warning\nand another\n"),
    "failed": (stream(init(), failed("API Error: 401")), 1, b""),
    "wrong option": (b"", 1, b"error: unknown option '--sing'\n"),
    "killed": (stream(*worked()[:5]), -9, b""),
    "not there": (b"", 127, b"claude: command not found\n"),
    "torn": (stream(*hello())[:-30], 0, b""),
    "no newline": (stream(*hello())[:-1], 0, b""),
    "invalid": (stream(init(), b"\xff\xfe\x00", *hello()[1:]), 0, b"\xff"),
    "array": (b"[" + b",".join(stream(*hello()).split(b"\n")[:-1]) + b"]", 0, b""),
    "pretty": (json.dumps(result(), indent=2).encode(), 0, b""),
}


@pytest.mark.parametrize("size", [1, 13, 100_000])
@pytest.mark.parametrize("name", RUNS)
def test_l1_the_tape_of_a_run_reads_as_the_run(name: str, size: int, tmp_path: Path) -> None:
    stdout, code, stderr = RUNS[name]
    _same(tmp_path, stdout, code, stderr, size)


@pytest.mark.parametrize("path", spread(recorded(300_000), 12), ids=named)
def test_l1_the_tape_of_a_recording_reads_as_the_recording(path: Path, tmp_path: Path) -> None:
    beside = {name: path.with_name(name) for name in ("stderr", "exit_code")}
    stderr = beside["stderr"].read_bytes() if beside["stderr"].is_file() else b""
    code = int(beside["exit_code"].read_text()) if beside["exit_code"].is_file() else None
    _same(tmp_path, path.read_bytes(), code, stderr, 4096)


def test_l1_stderr_may_come_in_any_pieces(tmp_path: Path) -> None:
    data = "first line\nzweite Zeile: größer\n".encode()
    found = []
    for cut in range(len(data) + 1):
        ticks = [err(part) for part in (data[:cut], data[cut:]) if part]
        found.append(steno.read(tape(tmp_path / f"t{cut}", *ticks, ended(1))).error)
    assert set(found) == {"first line\nzweite Zeile: größer"}


def test_l1_ticks_give_lines_their_time(tmp_path: Path) -> None:
    first, *rest = hello()
    header = Header(agent="claude", started_at=1_800_000_000.0)
    ticks = [
        Record(1.0, "out", stream(first)),
        Record(3.5, "out", stream(*rest)),
        Record(4.0, "exit", number=0),
    ]
    found = steno.read(tape(tmp_path / "t", *ticks, header=header))
    assert found.started_at is not None
    assert found.started_at.timestamp() in (
        1_800_000_000.0,
        1_800_000_001.0,
    )  # the tape's start, or its first line's


def test_l1_a_tape_that_never_knew_a_time_has_none(tmp_path: Path) -> None:
    assert steno.read(tape(tmp_path / "t", out(stream(*hello())), ended(0))).started_at is None


# -- ticks that are not stdout -------------------------------------------------------------------


def test_s_exit_ticks(tmp_path: Path) -> None:
    run = out(stream(*hello()))
    found = {code: steno.read(tape(tmp_path / f"t{code}", run, ended(code))) for code in (0, 3, -9)}
    assert [(one.exit_code, one.signal) for one in found.values()] == [
        (0, None),
        (3, None),
        (-9, 9),
    ]


def test_v7_stop_ticks(tmp_path: Path) -> None:
    run = out(stream(init(), assistant(text("Half."))))
    found = steno.read(tape(tmp_path / "t", run, stop("timeout"), ended(-15)))
    assert (found.verdict, found.text, found.signal) == ("timeout", "Half.", 15)


def test_s_stderr_ticks_explain_a_run_that_never_began(tmp_path: Path) -> None:
    found = steno.read(tape(tmp_path / "t", err(b"error: no prompt\n"), ended(1)))
    assert (found.verdict, found.error) == ("subprocess", "error: no prompt")


def test_w3_file_ticks_are_changes_seen_on_disk(tmp_path: Path) -> None:
    seen = [Record(None, "file", b"created b.py"), Record(None, "file", b"deleted old name.txt")]
    found = steno.read(tape(tmp_path / "t", out(stream(*hello())), *seen, ended(0)))
    assert [(file.path, file.change, file.source) for file in found.files] == [
        ("b.py", "created", "filesystem"),
        ("old name.txt", "deleted", "filesystem"),
    ]


def test_w3_a_file_that_was_seen_before_the_agent_said_where_it_works(tmp_path: Path) -> None:
    """Its name is one below the folder that the run was started in."""
    header = Header(agent="claude", cwd="/proj", started_at=1.7e9)
    lines = stream(init(cwd="/proj"), assistant(text("Done.")), result())
    seen = [
        Record(0.1, "file", b"created early.py"),
        out(lines),
        Record(0.2, "file", b"modified late.py"),
        ended(0),
    ]
    found = steno.read(tape(tmp_path / "t", *seen, header=header))
    assert [(file.path, file.absolute, file.inside) for file in found.files] == [
        ("early.py", "/proj/early.py", True),
        ("late.py", "/proj/late.py", True),
    ]


def test_i2_a_file_whose_name_is_no_utf8_can_be_reported(tmp_path: Path) -> None:
    seen = Record(None, "file", b"created caf\xe9.txt")
    found = steno.read(tape(tmp_path / "t", out(stream(*hello())), seen, ended(0)))
    (file,) = json.loads(found.to_json())["files"]
    assert (file["path"].startswith("caf"), file["change"]) == (True, "created")


def test_i4_a_tick_of_an_unknown_kind_is_counted(tmp_path: Path) -> None:
    found = steno.read(tape(tmp_path / "t", out(stream(*hello())), Record(None, "mood"), ended(0)))
    assert (found.verdict, found.lines.unknown) == ("success", 1)


@pytest.mark.parametrize("silence", [0.0, 4.0])
def test_a_run_without_a_result_starts_with_its_header_and_ends_with_its_exit(
    tmp_path: Path, silence: float
) -> None:
    """Also a silent one, and not with its first output or with what steno notes after the exit."""
    header = Header(agent="claude", run_id="r", started_at=1_800_000_000.0)
    records = (
        Record(4.0 - silence, "out", stream(init())),
        Record(4.0, "stop", b"timeout", 15),
        Record(4.04, "exit", number=-15),
        Record(9.0, "note", b"next: stop"),
    )
    shown = records if silence == 0.0 else records[1:]
    report = steno.read(tape(tmp_path / "run.steno", *shown, header=header))
    assert report.started_at is not None
    assert (report.started_at.timestamp(), report.duration_ms) == (1_800_000_000.0, 4040)


def test_the_result_of_a_superseded_run_does_not_count(tmp_path: Path) -> None:
    path = tape(tmp_path / "run.steno", out(stream(*hello())), ended(0))
    before = steno.read(path)
    mark_superseded(path, "another worker had taken over the task")
    report = steno.read(path)
    assert (report.verdict, report.ok, report.succeeded) == ("interrupted", False, True)
    assert report.error == "result not used: another worker had taken over the task"
    assert (report.tokens, report.cost, report.lines) == (before.tokens, before.cost, before.lines)
    assert RecordingFile(path).header == Header(agent="claude")


def test_a_superseded_failure_keeps_its_verdict(tmp_path: Path) -> None:
    path = tape(tmp_path / "run.steno", out(stream(init(), failed())), ended(1))
    before = steno.read(path)
    mark_superseded(path, "another worker had taken over the task")
    assert (steno.read(path).verdict, before.ok) == (before.verdict, False)
