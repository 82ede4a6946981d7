"""A recording and a ledger written before the modules and names were changed still open."""

import gzip
from pathlib import Path

import steno
from steno.ledger.store import open_ledger

HERE = Path(__file__).parent


def test_a_recording_of_an_earlier_version_is_read() -> None:
    report = steno.read(HERE / "recording-0.1.0.steno")
    assert (report.verdict, report.complete, report.exit_code) == ("success", True, 0)
    assert (report.tokens.total, report.context.used, report.requests) == (87_713, 18_004, 5)
    assert [file.path for file in report.files] == ["prices.py", "test_more.py"]


def test_a_ledger_of_an_earlier_version_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((HERE / "ledger-0.1.0.db.gz").read_bytes()))
    with steno.Ledger(path) as ledger:
        runs = {run.verdict: run for run in ledger.runs()}
        assert set(runs) == {"permission", "success"}
        assert runs["success"].tokens.total == 87_713
        assert ledger.report(runs["permission"].run_id).denials[0].allow_rule == "Edit(x.txt)"
        assert ledger.usage("model").total.requests == 7


def test_opening_it_changes_no_row(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((HERE / "ledger-0.1.0.db.gz").read_bytes()))
    tables = ("runs", "sessions", "requests", "calls", "changes", "denials", "texts", "spend")
    counts = []
    for _ in range(2):
        store = open_ledger(str(path))
        counts.append([store.query(f"SELECT count(*) FROM {name}", ())[0][0] for name in tables])
        store.close()
    assert counts[0] == counts[1]
    assert counts[0][0] == 2
