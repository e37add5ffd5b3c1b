"""What every kind of source is held to."""

import pickle

import numpy as np
import pytest


@pytest.fixture
def check_reads():
    """Blocks of any size in any order, also from a pickled copy, are the rows of the reference."""

    def check(source, reference, ids=None):
        n = len(reference)
        assert (source.shape, source.dtype) == (reference.shape, reference.dtype)
        assert source.has_ids == (ids is not None)
        blocks = [(0, n), (n // 2, n), (0, 1), (n - 1, n), (n // 3, n // 3), (n // 3, n // 2), (0, n // 2)]
        for reader in (source, pickle.loads(pickle.dumps(source))):
            for start, stop in blocks:
                block = reader.read(start, stop)
                assert block.dtype == reference.dtype
                np.testing.assert_array_equal(block, reference[start:stop])
                if ids is not None:
                    found = reader.ids(start, stop)
                    assert found.dtype == np.int64 or found.dtype.kind == "U"
                    np.testing.assert_array_equal(found, ids[start:stop])

    return check
