"""Whatever a ledger saw of a session, in whatever order, it counts it once and to the truth.

`python -m tests.one_truth` tries many more cases, and reduces those that fail; they are kept in
the folder `one_truth` beside this file.
"""

import os
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.one_truth import VERSIONS, check, check_in_folder, describe, draw_case
from tests.support.session_model import Case

KEPT = sorted((Path(__file__).parent / "one_truth").glob("*.json"))
EXAMPLES = int(os.environ.get("STENO_EXAMPLES") or 10)


def read_case(path: Path) -> Case:
    return msgspec.json.decode(path.read_bytes(), type=Case)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_case(path: Path) -> None:
    case = read_case(path)
    assert check_in_folder(case) == [], describe(case)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: " ".join(version))
@settings(max_examples=EXAMPLES)
@given(random=st.randoms(use_true_random=False))
def test_sessions(version: tuple[str, str], random: Random) -> None:
    case = draw_case(random, version)
    assert check_in_folder(case) == [], describe(case)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: " ".join(version))
def test_on_each_database(version: tuple[str, str], ledger_url: str, tmp_path: Path) -> None:
    case = draw_case(Random(26), version)
    assert check(case, ledger_url, tmp_path) == [], describe(case)
