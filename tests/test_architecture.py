"""The house rules that a machine can hold: who imports whom, a pure middle, honest sizes, words that mean something."""

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "steno"

# Each package may import the packages in its row: the table of docs/architecture.md.
ALLOWED = {
    "errors": set(),
    "event": set(),
    "report": {"errors"},
    "codec": set(),
    "config": {"errors", "report"},
    "http_client": set(),
    "pricing": {"errors", "codec"},
    "agents": {"errors", "event", "report", "codec"},
    "analysis": {"event", "report", "codec"},
    "recording": {"errors", "event", "report", "codec", "agents", "analysis"},
    "process": {"errors", "recording"},
    "workspace": {"errors", "event", "report", "codec", "analysis", "process"},
    "sync": {"errors", "event", "codec", "http_client", "process", "workspace"},
    "ledger": {
        "errors", "event", "report", "codec", "pricing", "agents", "analysis", "recording", "workspace",
    },
    "runner": {
        "errors", "event", "report", "codec", "config", "http_client", "pricing", "agents", "analysis", "recording",
        "process", "workspace", "ledger",
    },
    "api": {"errors", "event", "report", "pricing", "agents", "recording", "ledger", "runner"},
    "views": {"event", "report", "codec", "analysis", "workspace", "ledger"},
    "testing": {"errors", "event", "report", "codec", "pricing", "agents", "recording"},
    "cli": {
        "", "errors", "event", "report", "codec", "config", "pricing", "agents", "analysis", "recording", "workspace",
        "sync", "ledger", "runner", "api", "views",
    },
    "__init__": {"errors", "event", "report", "codec", "recording", "ledger", "api"},
    "__main__": {"cli"},
}  # fmt: skip
# Looks for installed plugins on sys.path, and only where no built-in agent matches.
IMPURE_MODULES = {"agents/plugins.py"}
PURE = {"errors", "event", "report", "codec", "agents", "analysis"}
IMPURE = {
    "os", "io", "sys", "pathlib", "shutil", "tempfile", "glob", "socket", "ssl", "http", "urllib.request", "subprocess",
    "asyncio", "threading", "multiprocessing", "signal", "time", "random", "secrets", "select", "selectors", "psutil", "logging",
}  # fmt: skip
EMPTY_WORDS = ("Manager", "Handler", "Helper", "Utils", "Util", "Base", "Common")

MODULES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    """The room that a module stands in: its package below steno, or its own name."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(path: Path) -> list[str]:
    """Every module that a file imports, absolute, also inside functions."""
    found = []
    package = ("steno", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            found += (
                [f"{module}.{alias.name}" for alias in node.names]
                if module == "steno"
                else [module]
            )
    return found


def ours(path: Path) -> set[str]:
    """The rooms that a file imports."""
    rooms = {[*name.split("."), ""][1] for name in imports(path) if name.split(".")[0] == "steno"}
    return rooms - {room(path), "__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_table(path: Path) -> None:
    """Arrows point one way only: a room that wants a later one is in the wrong place."""
    assert ours(path) <= ALLOWED[room(path)]


def test_the_table_has_no_cycle() -> None:
    """Taking away the rooms that import nothing left must empty the table."""
    left = {name: set(needs) - {""} for name, needs in ALLOWED.items()}
    while left:
        free = {name for name, needs in left.items() if not needs & left.keys()}
        assert free, f"a cycle among {sorted(left)}"
        left = {name: needs for name, needs in left.items() if name not in free}


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in MODULES
        if room(path) in PURE and str(path.relative_to(SOURCE)) not in IMPURE_MODULES
    ],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_the_middle_is_pure(path: Path) -> None:
    """No clock, no disk, no process, no network in the middle."""
    assert {
        name for name in imports(path) if name in IMPURE or name.split(".")[0] in IMPURE
    } == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_opens_with_a_sentence(path: Path) -> None:
    """What it does and what it never does."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text is not None
    assert text.rstrip().endswith((".", "`", ")", ":", '"')) or "\n" in text


def functions() -> list[tuple[int, str]]:
    """The length of every function, shortest first."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(
                    ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.name}:{node.name}")
                )
    return sorted(found)


def test_functions_stay_short() -> None:
    """Half fit in ten lines, nine in ten in thirty, none is above eighty."""
    lengths = [length for length, _ in functions()]
    assert lengths[len(lengths) // 2] <= 10
    assert lengths[len(lengths) * 9 // 10] <= 30
    assert functions()[-1][0] <= 80, functions()[-1]


def test_modules_stay_small() -> None:
    """A module of 600 lines is asking to be two rooms."""
    assert [path.name for path in MODULES if len(path.read_text("utf-8").splitlines()) > 600] == []


def test_names_say_something() -> None:
    """No Manager, Handler, Base, Utils, Helper, common."""
    classes = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in classes if name.endswith(EMPTY_WORDS)] == []
    assert [
        path.name
        for path in MODULES
        if path.stem.rstrip("s") in ("util", "helper", "common", "misc")
    ] == []


def test_only_cli_prints() -> None:
    """Everything else returns values."""
    for path in MODULES:
        if room(path) not in ("cli", "__main__"):
            calls = [
                node
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.Call)
            ]
            assert [
                call
                for call in calls
                if isinstance(call.func, ast.Name) and call.func.id == "print"
            ] == [], path


def test_importing_does_nothing() -> None:
    """`import steno` loads no third party and none of our rooms."""
    import subprocess

    code = "import sys, steno; print(sorted(name for name in sys.modules if name.startswith(('steno', 'msgspec', 'genai'))))"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "['steno']"


def test_the_public_names() -> None:
    """What the library promises, and nothing else."""
    import steno

    assert steno.__all__ == [
        "Event",
        "ImportResult",
        "Ledger",
        "LedgerError",
        "Note",
        "QueryScope",
        "Report",
        "RunFailed",
        "RunOptions",
        "RunParser",
        "RunStream",
        "RunSummary",
        "SearchHit",
        "SessionSummary",
        "SourceError",
        "StenoError",
        "TaskReport",
        "ToolCallStats",
        "UsageReport",
        "UsageRow",
        "UsageTotals",
        "Verdict",
        "arun",
        "decode_raw",
        "events",
        "read",
        "run",
        "stream",
    ]
    assert all(getattr(steno, name) for name in steno.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = steno.nothing
