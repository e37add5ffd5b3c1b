"""What the tests of clusters share."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Workers inherit the path, and find the scripted stages there.
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "runs"))


@pytest.fixture(scope="module")
def cluster():
    """Two workers on this machine, and what they had to say."""
    from pipeline.fanout.execution import executor
    from pipeline.settings import ClusterSettings

    notices: list[str] = []
    with executor(ClusterSettings(kind="local", n_workers=2), {"scripted": 7 << 20}, notices.append) as execute:
        execute.notices = notices
        yield execute
