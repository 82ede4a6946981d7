"""The pytest plugin: each test writes a test file and runs pytest on it in a process of its own."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from steno.errors import StenoError
from steno.report import Report
from steno.testing import assert_report
from tests.support.agent_programs import search_path
from tests.support.claude import clean_env, installed
from tests.support.modelserver import ModelServer, call, say
from tests.support.scripted_place import NEWEST, Place, done_well

pytest_plugins = ["pytester"]
REFUSED = {"recording": str(NEWEST / "permission_denied")}
GREETING = """
    def test_greeting(steno_run, assert_report):
        report = steno_run("say hello", max_turns=3)
        assert_report(report, contains="Done.")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The scripted `claude` is in PATH, for this process and those that it starts."""
    place = Place(tmp_path / "place")
    place.enter(monkeypatch)
    return place


def run_pytest(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Without other plugins: loading them takes longer than the rest."""
    pytester._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "steno.testing.pytest_plugin", *(("-p", "xdist") if "-n" in words else ()))
    return pytester.runpytest_subprocess(*plugins, *words)


def outcomes(pytester: pytest.Pytester, *words: str) -> dict[str, int]:
    return run_pytest(pytester, *words).parseoutcomes()


def summary(result: pytest.RunResult) -> str:
    """The line about the runs."""
    (line,) = [line for line in result.outlines if re.match(r"\d+ runs? in", line)]
    return line


# -- cache ---------------------------------------------------------------------------------------


def test_nothing_is_started_by_default(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    skipped = run_pytest(pytester, "-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.re_match_lines(
        [r".*no recorded run of this prompt in .*/say-hello-[0-9a-f]{12}; to run the agent: "]
    )
    required = run_pytest(pytester, "--steno-require")
    required.assert_outcomes(failed=1)
    required.stdout.fnmatch_lines(["*no recorded run of this prompt*pytest --steno-live*"])
    assert place.calls == []


@pytest.mark.parametrize(("is_ci", "words"), [(False, ()), (True, ()), (True, ("-n", "1"))])
def test_a_session_that_skipped_all_its_agent_tests(
    place: Place, pytester: pytest.Pytester, is_ci: bool, words: tuple[str, ...]
) -> None:
    """It says so; in CI it fails, unless other agent tests ran."""
    pytester._monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(f"{GREETING}\n    def test_other(): pass\n")
    if is_ci:
        pytester._monkeypatch.setenv("CI", "true")
    result = run_pytest(pytester, *words)
    result.assert_outcomes(skipped=1, passed=1)
    assert result.ret == int(is_ci)
    note = " (an error, as CI is set)" if is_ci else ""
    assert (
        "no agent test ran: 1 skipped, because their runs are not recorded; to record them: "
        f"--steno-live{note}"
    ) in result.outlines
    assert run_pytest(pytester, "--steno-live").ret == 0
    pytester.makepyfile(test_more=GREETING.replace("say hello", "say more"))
    result = run_pytest(pytester, *words)
    result.assert_outcomes(skipped=1, passed=2)
    assert result.ret == 0


def test_a_run_is_recorded_once(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    live = run_pytest(pytester, "--steno-live")
    live.assert_outcomes(passed=1)
    assert re.fullmatch(
        r"1 run in 1 test \(1 live, 0 recorded\) · 21,105 tokens · \$0\.\d{4}, of which live "
        r"\$0\.\d{4}",
        summary(live),
    )
    assert outcomes(pytester, "--steno-live") == {"passed": 1}
    place.program.unlink()  # not installed, as on a CI machine: the recorded version counts
    recorded = run_pytest(pytester, "--steno-require")
    recorded.assert_outcomes(passed=1)
    assert "(0 live, 1 recorded)" in summary(recorded)
    assert summary(recorded).endswith("of which live $0.0000")
    assert [one["prompt"] for one in place.calls] == ["say hello"]


@pytest.mark.parametrize("cause", ["not_found", "rate_limit"])
def test_a_run_without_an_answer_is_not_kept(
    place: Place, pytester: pytest.Pytester, cause: str
) -> None:
    place.plan({"recording": str(NEWEST / "api_429_exhausted")})
    if cause == "not_found":
        place.program.unlink()
    pytester.makepyfile(GREETING.replace("max_turns=3", "attempts=1, on_limit='fail'"))
    result = run_pytest(pytester, "--steno-live")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*the run: {cause}*"])
    assert list(pytester.path.glob(".steno-runs/*")) == []
    assert outcomes(pytester) == {"skipped": 1}


def test_refresh_runs_again(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    assert outcomes(pytester, "--steno-live") == {"passed": 1}
    place.plan({"out": done_well("Something else.")})
    assert outcomes(pytester, "--steno-refresh") == {"failed": 1}
    assert outcomes(pytester) == {"failed": 1}
    assert len(place.calls) == 2
    entries = [path.parent for path in pytester.path.glob(".steno-runs/*/*/*/report.json")]
    assert len(entries) == 1
    assert len(list(entries[0].glob("*.steno"))) == 1
    assert sorted(path.name for path in (pytester.path / ".steno-runs").iterdir()) == [
        entries[0].parts[-3]
    ]


def test_prompt_options_files_and_version_are_the_key(
    place: Place, pytester: pytest.Pytester
) -> None:
    source = """
        import pytest

        def test_it(steno_run, tmp_path):
            (tmp_path / "a.txt").write_text({text!r})
            assert steno_run({prompt!r}, add_dirs=[tmp_path], **{options!r}).ok
    """
    base: dict[str, Any] = {"text": "a", "prompt": "go", "options": {}}
    versions = place.folder / "versions"
    versions.mkdir()
    for version in ("2.1.1", "2.1.2"):
        (versions / version).write_bytes(place.program.read_bytes())
        (versions / version).chmod(0o755)
    place.program.unlink()
    place.program.symlink_to(versions / "2.1.1")
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"text": "b"},
        {"prompt": "go on"},
        {"options": {"max_turns": 4}},
    )
    for count, change in enumerate(changes, 1):
        pytester.makepyfile(source.format(**{**base, **change}))
        for _ in range(2):  # the temporary folder has another name each time
            assert outcomes(pytester, "--steno-live") == {"passed": 1}
            assert len(place.calls) == count
    place.program.unlink()
    place.program.symlink_to(versions / "2.1.2")
    skipped = run_pytest(pytester, "-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*no recorded run of this prompt with 2.1.2, only with 2.1.1*"])


def test_a_damaged_entry_is_named(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    assert outcomes(pytester, "--steno-live") == {"passed": 1}
    (path,) = pytester.path.glob(".steno-runs/*/*/*/report.json")
    path.write_text("{")
    result = run_pytest(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{path}: not a recorded run*delete its folder*"])


def test_the_folder_can_be_set(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    pytester.makeini("[pytest]\nsteno_cache = tests/runs\n")
    assert outcomes(pytester, "--steno-live") == {"passed": 1}
    assert len(list(pytester.path.glob("tests/runs/*/*/*/report.json"))) == 1
    assert outcomes(pytester, "--steno-cache=elsewhere") == {"skipped": 1}


# -- the marker ----------------------------------------------------------------------------------

REPEATED = """
    import pytest

    folders = []

    @pytest.mark.agent({arguments})
    def test_often(steno_run, assert_report, tmp_path):
        assert tmp_path not in folders
        folders.append(tmp_path)
        assert_report(steno_run("do it"))
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("repeat=5, min_success=0.8, max_cost=1", {"passed": 1}),
        ("repeat=5", {"failed": 1}),
        ("repeat=5, min_success=0.8, max_cost=0.02", {"failed": 1}),
    ],
)
def test_repetitions_are_one_test(
    place: Place, pytester: pytest.Pytester, arguments: str, expected: dict[str, int]
) -> None:
    """One of five runs was denied its calls. With `-n 2` as well, and from the recordings."""
    well = {"out": done_well()}
    place.plan(well, well, REFUSED, well, well)
    pytester.makepyfile(REPEATED.format(arguments=arguments))
    live = run_pytest(pytester, "--steno-live")
    assert live.parseoutcomes() == expected
    if "0.02" in arguments:
        live.stdout.re_match_lines([r".*max_cost: \$0\.0\d+ spent, limit \$0\.0200"])
        return
    assert len(place.calls) == 5
    assert "5 runs in 1 test (5 live, 0 recorded)" in summary(live)
    recorded = run_pytest(pytester, "-n", "2")
    assert recorded.parseoutcomes() == expected
    assert "5 runs in 1 test (0 live, 5 recorded)" in summary(recorded)
    if "failed" in expected:
        recorded.stdout.fnmatch_lines(
            [
                "min_success: 4 of 5 repetitions passed (80%, 95 % interval 38% to 96%), at least "
                "100% wanted",
                "  repetition 2: passed",
                "  repetition 3: failed: AssertionError: the report breaks 1 rule*",
                "the first failure:",
                "*verdict: verdict permission (lines 5, 7)",
            ]
        )


def test_a_failing_fixture_is_an_error_and_a_skip_a_skip(
    place: Place, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken(steno_run):
            raise OSError("no")

        @pytest.mark.agent(repeat=3)
        def test_broken(broken):
            pass

        @pytest.mark.agent(repeat=3)
        def test_unknown(steno_run):
            steno_run("nothing")

        @pytest.mark.agent
        def test_other_use_of_the_marker():
            pass
        """
    )
    assert outcomes(pytester, "--strict-markers") == {"errors": 1, "skipped": 1, "passed": 1}


@pytest.mark.parametrize("arguments", ["repeat=0", "times=3", "min_success=2", "max_cost='x'"])
def test_wrong_arguments_of_the_marker(
    place: Place, pytester: pytest.Pytester, arguments: str
) -> None:
    pytester.makepyfile(REPEATED.format(arguments=arguments))
    result = run_pytest(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::test_often: *pytest.mark.agent*"])


# -- figures -------------------------------------------------------------------------------------


def test_junit_has_tokens_and_cost(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GREETING)
    assert outcomes(pytester, "--steno-live", "--junitxml=out.xml") == {"passed": 1}
    tree = ElementTree.parse(pytester.path / "out.xml")
    found = {one.get("name"): one.get("value") for one in tree.iter("property")}
    cost = found.pop("steno_cost_usd")
    assert cost == found.pop("steno_live_cost_usd")
    assert float(str(cost)) > 0
    assert found == {
        "steno_runs": "1",
        "steno_live_runs": "1",
        "steno_verdicts": "success",
        "steno_tokens": "21105",
    }


def test_workers_add_up(place: Place, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(steno_run, number):
            assert steno_run(f"number {number}").ok
        """
    )
    result = run_pytest(pytester, "-n", "2", "--steno-live")
    result.assert_outcomes(passed=6)
    assert summary(result).startswith("6 runs in 6 tests (6 live, 0 recorded) · 126,630 tokens")
    assert outcomes(pytester, "-n", "2") == {"passed": 6}


def test_an_unknown_cost_is_unknown(place: Place, pytester: pytest.Pytester) -> None:
    lines = [json.loads(line) for line in done_well().splitlines()]
    del lines[-1]["total_cost_usd"], lines[-1]["modelUsage"]
    out = "".join(f"{json.dumps(line)}\n" for line in lines).replace("opus-5-5", "none-1")
    place.plan({"out": out})
    pytester.makepyfile(GREETING)
    result = run_pytest(pytester, "--steno-live")
    assert "$0.0000 (unknown for 1 test)" in summary(result)


def test_it_costs_nothing_unless_used(pytester: pytest.Pytester) -> None:
    """No other module of steno and no msgspec, and no section in the output."""
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            own = [name for name in sys.modules if name.startswith(("steno", "msgspec"))]
            assert sorted(own) == ["steno", "steno.testing", "steno.testing.pytest_plugin"]
        """
    )
    result = pytester.runpytest_subprocess()  # found as an installed plugin
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*agent runs*")


# -- reports -------------------------------------------------------------------------------------


def recorded(case: str) -> Report:
    import steno

    return steno.read(NEWEST / case)


def test_the_message_has_every_rule_and_its_evidence() -> None:
    report = recorded("multi_tool_edit")
    assert_report(report, tools=["Edit"], files=["nb.ipynb"], max_cost=0.1)
    assert_report(report, require_commands=["."], forbid_commands=("git push",))
    with pytest.raises(AssertionError) as failure:
        assert_report(report, max_cost=0.01, allow_files=["src/"], contains="never", tools="None*")
    assert str(failure.value).splitlines() == [
        "the report breaks 4 rules",
        "  max_cost: cost $0.0821, limit $0.0100 (line 30)",
        "  allow_files: changed: nb.ipynb (line 22)",
        "  require_text: missing in the answer: never",
        "  require_tools: not used: None*",
        "the run: success · claude 2.1.325 · 147,991 tokens · $0.0821",
        f"to see it: steno show {NEWEST / 'multi_tool_edit'}",
    ]


def test_the_verdict_is_checked_unless_told_otherwise() -> None:
    report = recorded("permission_denied")
    with pytest.raises(AssertionError, match=r"verdict: verdict permission \(lines 5, 7\)"):
        assert_report(report)
    assert_report(report, verdict=None)
    assert_report(report, verdict=["permission", "success"], max_denials=2)


def test_a_policy_file_counts_as_well(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('forbid_commands = ["rm -rf"]\nmax_changed_lines = 0\n')
    assert_report(recorded("permission_denied"), verdict=None, policy=policy)  # it was denied
    with pytest.raises(AssertionError, match="max_changed_lines"):
        assert_report(recorded("multi_tool_edit"), policy=policy)


def test_wrong_rules_are_no_failures() -> None:
    report = recorded("permission_denied")
    with pytest.raises(StenoError, match=r"unknown rule 'max_costs'; did you mean max_cost\?"):
        assert_report(report, max_costs=1)
    with pytest.raises(StenoError, match="max_cost: expected"):
        assert_report(report, max_cost="much")
    report.source = None
    with pytest.raises(StenoError, match="need the recording of the run: the report has no source"):
        assert_report(report, forbid_commands=["x"])


def test_replay_reads_recordings_beside_the_test(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("tests").mkdir()
    pytester.path.joinpath("tests", "runs").symlink_to(NEWEST)
    pytester.path.joinpath("tests", "test_it.py").write_text(
        "def test_it(steno_replay, assert_report):\n"
        "    assert_report(steno_replay('runs/multi_tool_edit'), max_turns=14)\n"
    )
    assert outcomes(pytester) == {"passed": 1}


# -- the real Claude Code ------------------------------------------------------------------------


def test_the_real_claude_is_recorded_with_its_files(
    tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = installed("2.1.325")
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "old.txt").write_text("old\n")
    pytester.makepyfile(
        f"""
        from pathlib import Path

        WORK = Path({str(work)!r})

        def test_it(steno_run, assert_report):
            report = steno_run("write a file", cwd=WORK, changes="all",
                               permission_mode="bypassPermissions")
            assert_report(report, tools=["Write", "Bash"], files=["src/new.txt"],
                          require_commands=["^rm old"], max_files=2, max_cost=1)
            assert (WORK / "src" / "new.txt").read_text() == "new\\n"
        """
    )
    steps = (
        call("Write", file_path=str(work / "src" / "new.txt"), content="new\n"),
        call("Bash", command="rm old.txt", description="a step"),
        say("Done."),
    )
    with ModelServer(*steps) as model:
        for name, value in clean_env(home, model.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", search_path(program))
        monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
        assert outcomes(pytester, "--steno-live") == {"passed": 1}
        assert len(model.asked) == 3
    (entry,) = pytester.path.glob(".steno-runs/write-a-file-*/2.1.325/0")
    assert sorted(path.name for path in entry.iterdir()) == sorted(
        ["files", "report.json", *(path.name for path in entry.glob("*.steno"))]
    )
    (work / "src" / "new.txt").unlink()
    (work / "old.txt").write_text("old\n")
    recorded_run = run_pytest(pytester, "--steno-require")
    recorded_run.assert_outcomes(passed=1)
    assert "(0 live, 1 recorded)" in summary(recorded_run)
    assert [path.name for path in work.iterdir()] == ["src"]


def test_the_example(place: Place, pytester: pytest.Pytester) -> None:
    example = Path(__file__).parents[2] / "examples" / "pytest"
    cache = pytester.path / "runs"
    config = pytester.makeini("[pytest]\n")  # not this repository's
    words = (str(example), "-c", str(config), "-p", "no:cacheprovider")
    assert outcomes(pytester, *words, f"--steno-cache={cache}") == {"passed": 1, "skipped": 1}
