"""The ledger of a recording and of its session's files: each alone, together, in any order.

STENO_RECORDED names a folder of recordings with `truth.json`; without it, a quarter of those of
this repository is compared. `python -m tests.recorded_truth` prints a table.
"""

import os
from pathlib import Path

import pytest

from tests.recorded_truth import Recorded, compare, recorded_here, recorded_in

GIVEN = os.environ.get("STENO_RECORDED")
HERE = list(recorded_here())
FEW = [HERE[number] for number in range(0, len(HERE), 1 if GIVEN else 4)]


@pytest.mark.parametrize("recorded", FEW, ids=lambda recorded: recorded.name)
def test_a_recording_and_its_files(recorded: Recorded, tmp_path: Path) -> None:
    assert compare(recorded, tmp_path).wrong == []


@pytest.mark.skipif(GIVEN is None, reason="STENO_RECORDED names no folder of recordings")
@pytest.mark.parametrize(
    "recorded", recorded_in(Path(GIVEN)) if GIVEN else (), ids=lambda recorded: recorded.name
)
def test_the_truth_of_the_server(recorded: Recorded, tmp_path: Path) -> None:
    assert compare(recorded, tmp_path).wrong == []
