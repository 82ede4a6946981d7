"""Contract checks for agents: an agent and its recordings in, violations out. Public API.

    import pytest
    from steno import testing
    from steno_parrot import AGENT

    @pytest.mark.parametrize("case", testing.cases("recordings"), ids=str)
    def test_recording(case):
        testing.check_case(AGENT, case)

    def test_start():
        testing.check_start(AGENT)

`check(AGENT, "recordings")` runs all of it in one call. A case is a folder with `stdout`, exactly
as the program printed it, and optionally `stderr`, `exit_code`, `sessions` (the agent's session
files) and `expected.json`: the report, checked by a person. Nothing is started, and no test runner
is needed; a violation is an AssertionError that names the case, the rule and the value.

`assert_report` checks the report of a run against rules; the pytest plugin, which is installed with
steno, has it as a fixture.
"""

TYPE_CHECKING = False  # importing `typing` would cost 4 ms
if TYPE_CHECKING:
    from .assertions import assert_report
    from .contract import Case, cases, check, check_case, check_start, report, violations

__all__ = [
    "Case",
    "assert_report",
    "cases",
    "check",
    "check_case",
    "check_start",
    "report",
    "violations",
]


def __getattr__(name: str) -> object:
    """Import on first use: pytest loads this package, with the plugin in it, at every start."""
    if name not in __all__:
        raise AttributeError(f"module 'steno.testing' has no attribute {name!r}")
    from importlib import import_module

    module = "assertions" if name == "assert_report" else "contract"
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value
