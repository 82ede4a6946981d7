"""House rules that a machine can check: imports, purity, sizes, names, language."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "steno"
MAX_COLUMNS = 100

# Each package may import the packages in its row: the table of docs/architecture.md.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "installation": set(),
    "event": set(),
    "report": {"errors", "codec"},
    "codec": set(),
    "private_files": set(),
    "executables": set(),
    "config": {"errors", "report", "private_files"},
    "http_client": set(),
    "pricing": {"errors", "event", "codec", "private_files"},
    "agents": {"errors", "event", "report", "codec"},
    "analysis": {"event", "report", "codec"},
    "recording": {"errors", "event", "report", "codec", "agents", "analysis"},
    "process": {"errors", "executables", "recording"},
    "workspace": {
        *("errors", "event", "report", "codec", "private_files", "executables", "analysis"),
        "process",
    },
    "sync": {"errors", "event", "codec", "private_files", "http_client", "process", "workspace"},
    "ledger": {
        *("errors", "event", "report", "codec", "pricing", "agents", "analysis", "recording"),
        *("private_files", "workspace"),
    },
    "runner": {
        *("private_files", "executables"),
        *("errors", "event", "report", "codec", "config", "http_client", "pricing"),
        *("agents", "analysis", "recording", "process", "workspace", "ledger"),
    },
    "api": {"errors", "event", "report", "pricing", "agents", "recording", "ledger", "runner"},
    "team": {"errors", "codec", "config", "analysis", "process", "workspace", "ledger", "runner"},
    "checks": {
        *("errors", "event", "report", "codec", "config", "private_files", "agents", "analysis"),
        *("recording", "workspace", "runner"),
    },
    "fleet": {
        *("errors", "event", "report", "codec", "private_files", "config", "agents", "workspace"),
        *("ledger", "runner", "checks"),
    },
    "views": {"event", "report", "codec", "analysis", "workspace", "ledger", "checks", "fleet"},
    "export": {
        *("errors", "event", "report", "codec", "agents", "analysis", "recording", "workspace"),
        *("ledger", "views", "checks"),
    },
    "web": {
        *("errors", "report", "codec", "pricing", "analysis", "recording", "ledger", "runner"),
        *("export", "views", "team", "fleet"),
    },
    "tui": {
        *("errors", "report", "pricing", "analysis", "recording", "ledger", "runner", "export"),
        "views",
    },
    "testing": {
        *("errors", "event", "report", "codec", "pricing", "agents", "recording", "config"),
        *("private_files", "runner", "api", "checks"),
    },
    "cli": {
        *("", "errors", "event", "report", "codec", "config", "pricing", "agents", "analysis"),
        *("private_files", "executables", "recording", "workspace", "sync", "ledger", "runner"),
        *("api", "views"),
        *("export", "web", "tui", "checks", "team", "fleet"),
    },
    "__init__": {"errors", "event", "report", "codec", "recording", "ledger", "api"},
    "__main__": {"cli"},
}
# Searches sys.path for installed plugins, only if no built-in agent matches.
IMPURE_MODULES = {"agents/plugins.py"}
PURE_PACKAGES = {"errors", "units", "event", "report", "codec", "agents", "analysis"}
IMPURE_IMPORTS = {
    *("os", "io", "sys", "pathlib", "shutil", "tempfile", "glob", "socket", "ssl", "http"),
    *("urllib.request", "subprocess", "asyncio", "threading", "multiprocessing", "signal"),
    *("time", "random", "secrets", "select", "selectors", "psutil", "logging"),
}
EMPTY_WORDS = ("Manager", "Handler", "Helper", "Utils", "Util", "Base", "Common")
# Phrases of an earlier private language; docs and code use ordinary developer English.
PRIVATE_PHRASES = re.compile(
    r"\b(?:mend(?:s|ed)?|(?:is|are|was|were|be) told|tells? of|goes on|go on|going on|went on"
    r"|lived on|(?:is|are|was|were) not there|is there no more|stands? beside|whoever"
    r"|nobody(?:'s)?|somebody|heed(?:s|ed)?|a room|rooms|once more|so long|is meant|will do"
    r"|ended by us|as it were)\b",
    re.IGNORECASE,
)

MODULES = sorted(SOURCE.rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def package_of(path: Path) -> str:
    """The package below steno, or the name of a top-level module."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


def module_name(path: Path) -> str:
    """The dotted name: steno.analysis.usage; a package without __init__."""
    parts = ["steno", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imported_names(path: Path) -> tuple[tuple[str, str], ...]:
    """Every (module, name) a file imports, also inside functions; name "" for `import module`."""
    package = ("steno", *path.relative_to(SOURCE).parent.parts)
    imports: list[tuple[str, str]] = []
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            imports += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            imports += [(module, alias.name) for alias in node.names]
    return tuple(imports)


def imported_modules(path: Path) -> list[str]:
    """Every module a file imports; names imported from `steno` itself count as modules."""
    return [
        f"{module}.{name}" if module == "steno" else module for module, name in imported_names(path)
    ]


def imported_packages(path: Path) -> set[str]:
    names = [name.split(".") for name in imported_modules(path)]
    packages = {[*parts, ""][1] for parts in names if parts[0] == "steno"}
    return packages - {package_of(path), "__version__"}


def classes() -> list[tuple[str, Path]]:
    return [
        (node.name, path)
        for path in MODULES
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.ClassDef)
    ]


def function_lengths() -> list[tuple[int, str]]:
    """The length of every function, shortest first."""
    return sorted(
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{relative(path)}:{node.name}")
        for path in MODULES
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


# -- imports -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_follow_the_table(path: Path) -> None:
    """A package that needs a later one is in the wrong layer."""
    assert imported_packages(path) <= ALLOWED[package_of(path)] | {"units", "installation"}


def test_the_table_has_no_cycle() -> None:
    remaining = {name: set(imports) - {""} for name, imports in ALLOWED.items()}
    while remaining:
        free = {name for name, imports in remaining.items() if not imports & remaining.keys()}
        assert free, f"a cycle among {sorted(remaining)}"
        remaining = {name: imports for name, imports in remaining.items() if name not in free}


def import_graph() -> dict[str, set[str]]:
    """Every module with the modules it imports, lazy imports included."""
    known = {module_name(path) for path in MODULES}
    graph = {}
    for path in MODULES:
        name = module_name(path)
        targets = set()
        for module, imported in imported_names(path):
            full = f"{module}.{imported}"
            targets.add(full if full in known else module)
        graph[name] = (targets & known) - {name}
    # The top-level package imports the others on first use of a public name.
    del graph["steno"]
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules imported directly or indirectly."""
    found: set[str] = set()
    pending = [start]
    while pending:
        new = graph.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def test_modules_have_no_import_cycle() -> None:
    """Not even with imports inside functions, which only hide a cycle."""
    graph = import_graph()
    imports = {name: reachable(graph, name) for name in graph}
    cycles = {
        tuple(sorted(other for other in imports[name] if name in imports.get(other, ())))
        for name in graph
        if name in imports[name]
    }
    assert cycles == set()


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in MODULES
        if package_of(path) in PURE_PACKAGES and relative(path) not in IMPURE_MODULES
    ],
    ids=relative,
)
def test_the_core_is_pure(path: Path) -> None:
    """No clock, disk, process or network in the core."""
    names = imported_modules(path)
    impure = {
        name for name in names if name in IMPURE_IMPORTS or name.split(".")[0] in IMPURE_IMPORTS
    }
    assert impure == set()


def test_importing_does_nothing() -> None:
    """`import steno` loads no third-party package and none of its own modules."""
    import subprocess

    code = (
        "import sys, steno; "
        "print(sorted(n for n in sys.modules if n.startswith(('steno', 'msgspec', 'genai'))))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "['steno']"


# -- sizes ---------------------------------------------------------------------------------------


def test_functions_stay_short() -> None:
    """Half within 10 lines, nine in ten within 30, none above 80."""
    lengths = function_lengths()
    assert lengths[len(lengths) // 2][0] <= 10
    assert lengths[len(lengths) * 9 // 10][0] <= 30
    assert lengths[-1][0] <= 80, lengths[-1]


def test_modules_stay_small() -> None:
    sizes = {relative(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > 600} == {}


def test_lines_fit_in_100_columns() -> None:
    """Also comments, docstrings and strings, which the formatter leaves alone."""
    assert [
        f"{relative(path)}:{number}"
        for path in MODULES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ] == []


# -- names and language --------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_has_a_docstring(path: Path) -> None:
    text = ast.get_docstring(syntax_tree(path))
    assert text is not None
    assert text.rstrip().endswith((".", "`", ")", ":", '"')) or "\n" in text
    assert "TODO" not in text


def test_names_say_something() -> None:
    """No Manager, Handler, Base, Utils, Helper, common."""
    assert [name for name, _ in classes() if name.endswith(EMPTY_WORDS)] == []
    empty_modules = ("util", "helper", "common", "misc")
    assert [path.name for path in MODULES if path.stem.rstrip("s") in empty_modules] == []


def test_class_names_are_unique() -> None:
    """One name for one thing. Agents name their wire schemas after the fields on the wire."""
    modules: dict[str, list[str]] = {}
    for name, path in classes():
        if package_of(path) != "agents":
            modules.setdefault(name, []).append(relative(path))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def test_the_language_is_plain() -> None:
    """Docstrings, comments and messages use ordinary developer English."""
    assert [
        f"{relative(path)}:{number}: {match.group(0)}"
        for path in MODULES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := PRIVATE_PHRASES.search(line)) is not None
    ] == []


def test_only_cli_prints() -> None:
    """Everything else returns values."""
    assert [
        f"{relative(path)}:{node.lineno}"
        for path in MODULES
        if package_of(path) not in ("cli", "__main__")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ] == []


PUBLIC_NAMES = """
    Event ImportResult Ledger LedgerError Note QueryScope Report RunFailed RunOptions RunParser
    RunStream RunSummary SearchHit SessionSummary SourceError StenoError TaskReport ToolCallStats
    UsageReport UsageRow UsageTotals Verdict arun decode_raw events read run stream
"""


def test_the_public_names() -> None:
    """What the library promises, and nothing else."""
    import steno

    assert steno.__all__ == PUBLIC_NAMES.split()
    assert all(getattr(steno, name) for name in steno.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = steno.nothing


def test_one_module_starts_git() -> None:
    """`workspace/repository.py` keeps the repository's configuration away from git."""
    starting = set()
    for path in MODULES:
        for node in ast.walk(syntax_tree(path)):
            words = getattr(node, "elts", []) or getattr(node, "args", [])
            first = words[0] if isinstance(words, list) and words else None
            if isinstance(first, ast.Constant) and str(first.value).split(" ")[0] == "git":
                starting.add(relative(path))
    # The first words of commands that Copilot asks about, not a command of ours.
    assert starting - {"agents/copilot/tables.py"} == {"workspace/repository.py"}
