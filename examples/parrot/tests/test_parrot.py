"""The contract checks of steno on the recordings: `pip install -e . pytest && pytest`."""

from pathlib import Path

import pytest
from steno_parrot import AGENT

from steno import testing

RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.mark.parametrize("case", testing.cases(RECORDINGS), ids=str)
def test_recording(case: testing.Case) -> None:
    testing.check_case(AGENT, case)


def test_start() -> None:
    testing.check_start(AGENT, ("parrot-0a1b2c3d",))
