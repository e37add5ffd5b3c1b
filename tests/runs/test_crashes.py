"""A run killed at any write or deletion, and started again, ends with the same bytes and computes nothing twice."""

import shutil

import numpy as np
import pytest
from small import Counting, contents, extended, fitted, roll_file
from snapshots import bury_the_holder, committed, snapshots_of

from pipeline.stages import embed
from pipeline.store import local


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """A kill leaves what was written, synced or not; and a small sample is as good to compare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_sync", lambda _: None)
        patch.setattr(embed, "MOST_SAMPLED", 150)
        yield


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The source, the undisturbed run, and a snapshot for every operation of it."""
    folder = tmp_path_factory.mktemp("killed")
    source = roll_file(folder)
    whole = Counting()
    taken = snapshots_of(folder / "snapshots", lambda: fitted(source, folder / "whole", whole, n_landmarks=16))
    return source, folder, whole, taken


# Every 24th operation in the quick suite, all others in `make test-faults`.
SHARES = 24


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0, *(pytest.param(i, marks=pytest.mark.faults) for i in range(1, SHARES))])
def test_killed_at_any_operation_it_ends_the_same(killed, share):
    source, folder, whole, operations = killed
    expected = contents(folder / "whole")
    everything = set(whole.computed_partitions)
    assert len(operations) > 100
    for number in range(share, len(operations), SHARES):
        root = folder / "snapshots" / str(number)
        bury_the_holder(root)
        before = committed(root)
        again = fitted(source, root, Counting(), n_landmarks=16)
        where = f"killed at operation {number}, {operations[number]}"
        assert contents(root) == expected, where
        assert len(again.computed_partitions) == len(set(again.computed_partitions)), where
        assert not before & set(again.computed_partitions), where
        assert before | set(again.computed_partitions) == everything, where
        assert len(list((root / "lease").iterdir())) <= 2, where
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def killed_extension(tmp_path_factory):
    """The same of an extension with everything that it can be asked for."""
    folder = tmp_path_factory.mktemp("extension")
    source = roll_file(folder)
    fitted(source, folder / "run", n_landmarks=16)
    new = folder / "new.npy"
    np.save(new, np.load(source)[:4300] + 0.01)
    given = {"arc": 3, "arc_rows": (5, 4200), "partition_mib": 1}
    taken = snapshots_of(folder / "snapshots", lambda: extended(folder / "run", new, folder / "whole", **given))
    return folder, new, given, taken


@pytest.mark.timeout(900)
@pytest.mark.faults
@pytest.mark.parametrize("share", range(8))
def test_an_extension_killed_at_any_operation_ends_the_same(killed_extension, share):
    folder, new, given, operations = killed_extension
    expected = contents(folder / "whole")
    assert len(operations) > 60
    for number in range(share, len(operations), 8):
        root = folder / "snapshots" / str(number)
        bury_the_holder(root)
        before, again = committed(root), Counting()
        extended(folder / "run", new, root, again, **given)
        where = f"killed at operation {number}, {operations[number]}"
        assert contents(root) == expected, where
        assert not before & set(again.computed_partitions), where
        shutil.rmtree(root)
