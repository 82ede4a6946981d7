"""Check the documents: code, commands and their output, links and tables.

Blocks marked `python` are executed, unless they begin with `# not run: ...`. In blocks marked
`console`, each line that begins with `$ ` is run in a shell, and its output is compared with the
lines below: all of it or, with a line `...`, the other lines in their order. `# exit N` after a
command is its exit code if not 0. `$ export NAME=VALUE` holds for the rest of the document, as in a
reader's shell. A block of any language that begins with `# save as PATH` is that file.
`python -m tests.test_docs FILE...` runs a document's commands and updates their
output, except where it is cut by `...`.

Examples are about recordings of this repository: none of them may end up in a reader's own ledger.
Each runs in a new home, in which no ledger and no recording may be written.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TOPS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
]
PAGES = [*TOPS, *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
REFUSED = "tests/recordings/claude/2.1.325/permission_denied"
ARGUMENTS: dict[
    str, tuple[list[str], int]
] = {  # for each example, what it is run with and the exit code it ends with
    "fail_by_verdict.py": ([REFUSED], 1),
    "run_agents.py": ([], 0),
    "shortcuts.py": (["tests/recordings/claude/1.0.100"], 0),
    "sum_cost.py": (["tests/recordings/claude/1.0.100"], 0),
    "tool_failures.py": ([REFUSED], 0),
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CUT = "..."
EXPORT = re.compile(r"export (\w+)=(.+)")
OWN_LEDGER = "own-ledger.db"  # where a reader's STENO_LEDGER leads
OWN_DATA = "writes to the reader's own ledger or recordings: use a scratch STENO_LEDGER"


def name(path: Path) -> str:
    """A document's name in the output of the tests."""
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    """A block of code in a document, and the line that it begins on."""

    line: int
    text: str


def blocks(path: Path, language: str) -> list[Block]:
    """The blocks of a document in one language."""
    page = path.read_text("utf-8")
    return [
        Block(page.count("\n", 0, found.start(2)), found[2])
        for found in FENCE.finditer(page)
        if found[1] == language
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the repository for commands that write files."""
    return linked(tmp_path)


def at_home(folder: Path) -> dict[str, str]:
    """The environment, with the folder for a home: what a run leaves behind stays there."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("STENO_", "XDG_"))
    }
    return {**own, "HOME": str(folder), "STENO_LEDGER": str(folder / OWN_LEDGER)}


def own_data(home: Path) -> list[str]:
    """The user's own ledger, and recordings in the data directory."""
    folder = home / ".local" / "share" / "steno"
    found = [*home.glob(f"{OWN_LEDGER}*"), *folder.glob("ledger*"), *folder.rglob("*.steno")]
    return sorted(str(path.relative_to(home)) for path in found)


def linked(folder: Path) -> Path:
    """The folder, with the parts of the repository that the documents read."""
    for part in ("tests", "examples", "src"):
        (folder / part).symlink_to(ROOT / part)
    return folder


# -- code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "python")], ids=name)
def test_python_runs(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block on its own, as a stranger would paste it."""
    monkeypatch.chdir(place)
    for variable in [*os.environ]:
        if variable.startswith(("STENO_", "XDG_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("STENO_LEDGER", str(place / OWN_LEDGER))
    for block in blocks(path, "python"):
        if not block.text.startswith("# not run: "):
            code = compile(
                "\n" * block.line + block.text, str(path), "exec"
            )  # a failure then names the document's line
            exec(code, {"__name__": "__main__"})
            assert own_data(place) == [], f"{name(path)}, below line {block.line}: {OWN_DATA}"


def test_every_example_has_arguments() -> None:
    """A new example is a new line in the table above."""
    assert [path.name for path in EXAMPLES] == sorted(ARGUMENTS)


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_examples_run(path: Path, place: Path) -> None:
    """On a recording of this repository, without a traceback."""
    words, code = ARGUMENTS[path.name]
    done = subprocess.run(
        [sys.executable, path, *words],
        cwd=place,
        env=at_home(place),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert done.stdout + done.stderr
    assert own_data(place) == [], OWN_DATA


@pytest.mark.parametrize("name_", [name for name in sorted(ARGUMENTS) if ARGUMENTS[name][0]])
@pytest.mark.parametrize(
    "words", [[], ["/no/such/folder"], ["src/steno/cli"]], ids=["nothing", "not there", "not one"]
)
def test_examples_say_what_they_expect(name_: str, words: list[str], place: Path) -> None:
    """Without input: one line on stderr, exit code 2, no traceback."""
    command = [sys.executable, str(ROOT / "examples" / name_), *words]
    done = subprocess.run(
        command, cwd=place, env=at_home(place), capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines()), "Traceback" in done.stderr) == (
        2,
        1,
        False,
    ), done.stderr


def test_examples_read_a_folder_of_recordings(place: Path) -> None:
    """And tell of all that is in it."""
    words = [
        sys.executable,
        str(ROOT / "examples" / "tool_failures.py"),
        "tests/recordings/claude/2.1.325",
    ]
    done = subprocess.run(
        words, cwd=place, env=at_home(place), capture_output=True, encoding="utf-8", check=True
    )
    assert re.search(r"^Bash: \d\d+ of \d\d+ calls$", done.stdout, re.M)


# -- commands ------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command in a document, the exit code that is noted for it, and what is pasted below it."""

    line: int
    words: str
    code: int
    pasted: list[str]


def commands(path: Path) -> Iterator[Command]:
    """Every command of a document's console blocks."""
    for block in blocks(path, "console"):
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            first, *pasted = part.rstrip("\n").split("\n")
            noted = re.search(r"\s+# exit (\d+)$", first)
            yield Command(block.line + 1, first, int(noted[1]) if noted else 0, pasted)


def save_files(path: Path, place: Path) -> None:
    """Write the files that a document tells its reader to save."""
    for found in FENCE.finditer(path.read_text("utf-8")):
        named = re.match(r"# save as (\S+)\n", found[2])
        if named is not None:
            file = place / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(found[2], "utf-8")


class Shell:
    """A reader's shell: a page of 80 columns in UTC, with what the document exports."""

    def __init__(self, place: Path) -> None:
        self.place = place
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {"PATH": path, "TZ": "UTC", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
        self.environment |= {"HOME": str(place), "STENO_LEDGER": str(place / OWN_LEDGER)}

    def run(self, command: str) -> tuple[int, list[str]]:
        """A command's exit code and all that it prints."""
        exported = EXPORT.fullmatch(command)
        if exported is not None:
            command = f'printf "%s" {exported[2]}'
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.place,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        printed = done.stdout.decode("utf-8").rstrip("\n").split("\n")
        if exported is not None:
            self.environment[exported[1]] = printed[0]
            printed = [""]
        return done.returncode, printed


def missing(pasted: list[str], printed: list[str]) -> str | None:
    """The first pasted line that the program does not print; None if all are there."""
    rest = iter(printed)
    for line in pasted:
        if line.strip() != CUT and not any(line.rstrip() == other.rstrip() for other in rest):
            return line
    return None


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "console")], ids=name)
def test_commands_print_what_is_pasted(path: Path, place: Path) -> None:
    """Whoever types it sees what the document shows."""
    shell = Shell(place)
    save_files(path, place)
    for command in commands(path):
        where = f"{name(path)}, below line {command.line}: {command.words}"
        code, printed = shell.run(command.words)
        assert code == command.code, f"{where}\n" + "\n".join(printed)
        assert own_data(place) == [], f"{where}: {OWN_DATA}"
        if CUT in [line.strip() for line in command.pasted]:
            assert set(command.pasted) != {CUT}, f"{where}\nshow something of what it prints"
            assert missing(command.pasted, printed) is None, f"{where}\n" + "\n".join(printed)
        elif command.pasted:
            assert [line.rstrip() for line in command.pasted] == [
                line.rstrip() for line in printed
            ], where


# -- links and tables ----------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The names that a page's headings can be linked by."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    """Files that exist, and headings that are in them."""
    wrong = []
    for link in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        other = path.parent / target if target else path
        if not other.exists() or (anchor and anchor not in anchors(other)):
            wrong.append(link)
    assert wrong == []


def test_every_page_is_linked() -> None:
    """A page that no other names is a page that nobody finds."""
    linked = set()
    for path in PAGES:
        linked |= {
            (path.parent / link.partition("#")[0]).resolve()
            for link in LINK.findall(path.read_text("utf-8"))
        }
    assert [
        name(path) for path in PAGES if path.resolve() not in linked and path.name != "README.md"
    ] == []


def test_the_figures_of_the_readme() -> None:
    """The comparison counts what examples/shortcuts.py counts."""
    words = [
        sys.executable,
        str(ROOT / "examples" / "shortcuts.py"),
        str(ROOT / "tests" / "recordings" / "claude"),
    ]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    counted = re.findall(r": (\d+) called a success, (\d+) of them", printed)
    page = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \|$", page, re.M) == counted
    assert f"the {printed.split()[0]} recorded runs" in page
    assert re.findall(r"In each row, (\d+) of", page) == list(
        dict.fromkeys(re.findall(r"(\d+) interactive", printed))
    )


def test_the_versions_of_the_readme() -> None:
    """What it says was tested is what each agent says."""
    from steno.agents import AGENTS

    page = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(r"^  \| (?!agent|---)([^|]+?) \|.*\| ([\d., ]+) \|$", page, re.M)
    assert [versions.split(", ") for _, versions in shown] == [
        list(agent.installation.tested_versions) for agent in AGENTS.values()
    ]


def test_own_files_that_are_not_imported_by_default() -> None:
    """The README says so in the rows of these agents, and in no other."""
    from steno.agents import AGENTS

    page = (ROOT / "README.md").read_text("utf-8")
    files = re.findall(r"^  \| (?!agent|---)[^|]+\|[^|]+\| ([^|]+?) \| [\d., ]+ \|$", page, re.M)
    assert len(files) == len(AGENTS)
    assert [text.endswith("`, only with `steno ledger import PATH`") for text in files] == [
        not agent.transcripts.auto_import for agent in AGENTS.values()
    ]


def test_the_extras_of_the_readme() -> None:
    """Each has its row, and there are no others."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    page = (ROOT / "README.md").read_text("utf-8").partition("## Install")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == list(extras)


def test_what_is_handed_on_as_source(tmp_path: Path) -> None:
    """The sdist holds the documents, the examples and the tests, and nothing by accident."""
    import tarfile

    words = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    (packed,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in names if "/" not in name} == {
        *(
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "LICENSE",
            "Makefile",
            "PKG-INFO",
            "README.md",
            "pyproject.toml",
            "action.yml",
            ".gitignore",
        ),
    }
    assert {name.partition("/")[0] for name in names if "/" in name} == {
        *("benchmarks", "docs", "examples", "requirements", "src", "tests"),
    }
    assert {
        "docs/reference/cli.md",
        "examples/run_agents.py",
        "tests/test_docs.py",
        "src/steno/py.typed",
    } <= names


def test_the_import_table_is_the_one_that_is_enforced() -> None:
    """docs/architecture.md shows the table of test_house.py."""
    from tests.test_architecture import ALLOWED

    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    shown = {}
    for row in re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.M):
        shown[row[0]] = set(re.findall(r"`(\w+)`", row[1]))
    assert shown == {room: needs - {""} for room, needs in ALLOWED.items()}


def rule_names(path: Path) -> set[str]:
    """The rules that the comments, docstrings and functions of a module name."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    nodes = [
        node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, DOCUMENTED)
    ]
    told = [token.string for token in tokens if token.type == tokenize.COMMENT]
    told += [ast.get_docstring(node) or "" for node in nodes]
    told += [
        found[1].upper()
        for node in nodes
        if (found := re.match(r"test_([a-z]\d+)_", getattr(node, "name", "")))
    ]
    return set(re.findall(r"\b[A-Z]\d{1,2}\b", "\n".join(told)))


def test_every_rule_that_is_named_is_documented() -> None:
    """docs/reference/rules.md has each rule that the source or a test names, once."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    named = set().union(*(rule_names(path) for path in sources if "recordings" not in path.parts))
    told = re.findall(
        r"^\| ([A-Z]\d+) \|", (ROOT / "docs" / "reference" / "rules.md").read_text("utf-8"), re.M
    )
    assert sorted(named - set(told)) == []
    assert len(told) == len(set(told))


# -- requirements --------------------------------------------------------------------------------


class Requirement(NamedTuple):
    """A row of docs/requirements.md."""

    wanted: str
    means: list[str]
    tests: list[str]
    state: str


def requirements() -> list[Requirement]:
    """The rows of all its tables."""
    page = (ROOT / "docs" / "requirements.md").read_text("utf-8")
    cells = [re.split(r" \| ", line.strip("| ")) for line in re.findall(r"^\| .*$", page, re.M)]
    rows = [row for row in cells if row[0] not in ("wanted", "---")]
    assert {len(row) for row in rows} == {4}
    quoted = re.compile(r"`([^`]+)`")
    return [
        Requirement(wanted, quoted.findall(means), quoted.findall(tests), state)
        for wanted, means, tests, state in rows
    ]


def public_name(means: str) -> bool:
    """Whether a name of `steno`, or a field of one of its values or events, exists."""
    import steno
    import steno.event
    import steno.report

    first, _, second = means.partition(".")
    if first == "steno":
        return second in steno.__all__
    owner = getattr(steno.report, first, None) or getattr(steno.event, first, None)
    return owner is not None and hasattr(owner, second)


def test_requirements_name_existing_tests() -> None:
    functions: dict[str, set[str]] = {}
    missing = []
    for test in (test for row in requirements() for test in row.tests):
        file, _, function = test.partition("::")
        path = ROOT / "tests" / file
        if file not in functions:
            names = re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), re.M)
            functions[file] = set(names)
        if function not in functions[file]:
            missing.append(test)
    assert missing == []


def test_requirements_name_existing_commands() -> None:
    """Commands, their options, and names of the library."""
    helps: dict[str, str] = {}
    wrong = []
    for means in (means for row in requirements() for means in row.means):
        if not means.startswith("steno "):
            wrong += [] if public_name(means) else [means]
            continue
        words = means.split()[1:]
        parts = words[: 2 if words[0] == "ledger" else 1]
        command = " ".join(parts)
        if command not in helps:
            line = [sys.executable, "-m", "steno", *parts, "--help"]
            helps[command] = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        for option in [word for word in words if word.startswith("--")]:
            if not re.search(rf"(?<![\w-]){option}(?![\w-])", helps[command]):
                wrong.append(means)
    assert wrong == []


def test_requirements_have_a_state() -> None:
    """Each row has one; what is said to work has a command and a test."""
    for row in requirements():
        word = re.match(r"as wanted|differs: |not yet|planned", row.state)
        assert word, row
        if word[0] in ("as wanted", "differs: "):
            assert row.means, row
            assert row.tests, row


# -- the generated reference ---------------------------------------------------------------------

GENERATE = [sys.executable, str(ROOT / "docs" / "reference" / "generate.py")]


def test_the_reference_is_up_to_date() -> None:
    """What `make reference` would write is what is there."""
    done = subprocess.run([*GENERATE, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_check_names_what_differs(tmp_path: Path) -> None:
    """A page that was changed by hand is named, the others are not."""
    subprocess.run([*GENERATE, tmp_path], check=True)
    (tmp_path / "cli.md").write_text("by hand")
    done = subprocess.run(
        [*GENERATE, "--check", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.findall(r"(\w+\.md): differs", done.stderr) == ["cli.md"]


# -- pasting anew --------------------------------------------------------------------------------


def pasted_anew(path: Path, place: Path) -> str:
    """A document with what its commands print now, below every command whose output is not cut."""
    page = path.read_text("utf-8")
    shell = Shell(place)
    for command in commands(path):
        printed = shell.run(command.words)[1]
        old = "\n".join([f"$ {command.words}", *command.pasted])
        if command.pasted and CUT not in [line.strip() for line in command.pasted]:
            page = page.replace(old, "\n".join([f"$ {command.words}", *printed]))
    return page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        clone = linked(Path(folder))
        for word in sys.argv[1:]:
            Path(word).write_text(pasted_anew(Path(word).resolve(), clone), "utf-8")


def test_the_tests_that_hold_what_security_promises_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    names = re.findall(r"`(test_\w+)`", text)
    assert names
    assert [name for name in names if not any(f"def {name}(" in text for text in sources)] == []
    assert [name for name in re.findall(r"`(tests/\S+)`", text) if not (ROOT / name).exists()] == []
