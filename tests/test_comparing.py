"""How comparisons are cut: each once, in pieces enough for a cluster and not too many to keep track of."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.partitions import ENOUGH_PIECES, FEWEST_ROWS, MOST_PIECES, MOST_ROWS, Comparisons


@given(st.integers(1, 3000), st.integers(1, 70))
def test_every_row_meets_every_landmark_in_exactly_one_piece(n_rows, n_landmarks):
    cut, met = Comparisons(n_rows, n_landmarks), np.zeros((n_rows, n_landmarks), dtype=int)
    for piece in range(cut.count):
        rows = cut.rows(piece)
        assert len(rows)
        met[rows.start : rows.stop, cut.landmarks(piece)] += 1
    assert (met == 1).all()


@given(st.integers(1, 10**9), st.integers(1, 5000))
def test_there_are_neither_few_pieces_nor_too_many_where_rows_allow_it(n_rows, n_landmarks):
    cut = Comparisons(n_rows, n_landmarks)
    assert FEWEST_ROWS <= cut.rows_each <= MOST_ROWS
    assert cut.count >= ENOUGH_PIECES or cut.rows_each == FEWEST_ROWS
    assert cut.count <= MOST_PIECES or cut.rows_each == MOST_ROWS


def test_a_few_thousand_objects_are_work_for_a_cluster():
    cut = Comparisons(2000, 32)
    assert (cut.count, cut.rows_each) == (64, 64)
