"""A few thousand of the mutations of `tests.fuzz`; the long run is `python -m tests.fuzz`."""

import pytest

from tests.fuzz import Outcome, batch


@pytest.mark.parametrize("number", range(40))
def test_i3_damaged_lines_never_raise_and_are_never_lost(number: int) -> None:
    assert batch(seed=1, number=number, size=100) == Outcome(mutations=100)
