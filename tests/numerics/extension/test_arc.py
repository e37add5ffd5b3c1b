"""The arc starts at the projection, ends at the reconstruction and is continuous between."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.extension import project, reconstruction_arc, restricted_reconstruction
from pipeline.numerics.mds import LandmarkModel, classical_mds


def random_problem(seed):
    rng = np.random.default_rng(seed)
    shape = np.array([3, 2, 1, 1, 1])
    landmarks, point = rng.normal(size=(12, 5)) * shape, rng.normal(size=(1, 5)) * shape * rng.choice([0.2, 1, 4])
    return classical_mds(cdist(landmarks, landmarks, "sqeuclidean"), 3), cdist(point, landmarks, "sqeuclidean")[0]


def planted_problem(inner, length):
    """A model with lam = (50, 32) and a row whose moments are c = `inner` and beta = `length`."""
    X = np.array([[5.0, 0], [-5, 0], [0, 4], [0, -4]])
    squared = cdist(X, X, "sqeuclidean")
    model = LandmarkModel(
        X, np.array([50.0, 32.0]), squared.mean(axis=1), float(squared.mean()), np.array([50.0, 32, 0, 0])
    )
    b = X @ (np.asarray(inner) / model.eigenvalues)
    return model, -2 * b + model.row_means + length - model.grand_mean / 2


HARD = [
    planted_problem((0, 0), 400.0),
    planted_problem((120, 0), 400.0),
    planted_problem((120, 1e-9), 400.0),
    planted_problem((-120, -1e-3), 400.0),
    planted_problem((0, 1e-12), 400.0),
]
problems = st.one_of(st.integers(0, 2**32 - 1).map(random_problem), st.sampled_from(HARD))


@given(problems, st.sampled_from([1.0, 0.1, "balanced"]))
def test_ends_are_the_two_answers_to_the_bit(problem, weight):
    model, row = problem
    arc = reconstruction_arc(model, row, 7, weight)
    np.testing.assert_array_equal(arc[0], project(model, [row])[0])
    np.testing.assert_array_equal(arc[-1], restricted_reconstruction(model, [row], weight).coordinates[0])


@given(problems, st.sampled_from([2, 3, 50, 400]))
def test_steps_have_equal_length_so_nothing_jumps(problem, n_steps):
    model, row = problem
    arc = reconstruction_arc(model, row, n_steps)
    assert arc.shape == (n_steps, model.n_components)
    reference = reconstruction_arc(model, row, 5000)
    total = np.linalg.norm(np.diff(reference, axis=0), axis=1).sum()
    steps = np.linalg.norm(np.diff(arc, axis=0), axis=1)
    assert (steps <= total / (n_steps - 1) * 1.001 + 1e-12).all()
    # Chords cut corners, so coarse steps may be shorter than their piece of the arc; fine ones leave little out.
    if n_steps == 400:
        assert steps.sum() >= 0.99 * total


@given(problems)
def test_every_position_solves_the_equation_for_some_multiplier(problem):
    """c / (lam + x) with one x for all coordinates, or the straight piece of the hard case along the last axis."""
    model, row = problem
    arc = reconstruction_arc(model, row, 30)
    end = arc[-1]
    inner = project(model, [row])[0] * model.eigenvalues
    multiplier = restricted_reconstruction(model, [row]).multipliers[0]
    for y in arc:
        moving = np.abs(y) > 1e-6 * np.abs(end).max()
        x = inner[moving] / y[moving] - model.eigenvalues[moving]
        on_straight_piece = np.allclose(y[:-1], end[:-1], rtol=1e-6, atol=1e-9)
        assert on_straight_piece or np.ptp(x) <= 1e-5 * model.eigenvalues[0]
        assert on_straight_piece or (min(multiplier, 0) - 1e-4 <= x.min() and x.max() <= max(multiplier, 0) + 1e-4)


def test_hard_case_takes_the_curve_and_then_the_straight_piece():
    model, row = HARD[1]
    arc = reconstruction_arc(model, row, 1001)
    np.testing.assert_allclose(arc[0], [120 / 50, 0], atol=1e-12)
    np.testing.assert_allclose(arc[-1], [120 / 18, np.sqrt(400 - 32 - (120 / 18) ** 2)], rtol=1e-10)
    corner = arc[np.argmax(arc[:, 1] > 0)]
    np.testing.assert_allclose(corner, [120 / 18, 0], atol=0.1)


@pytest.mark.parametrize("n_steps", [1, 0, 2.5, "9"])
def test_bad_numbers_of_steps_are_refused(n_steps):
    with pytest.raises(InvalidInputError, match=r"n_steps=.* at least 2"):
        reconstruction_arc(*HARD[0], n_steps)


def test_several_rows_are_refused():
    model, row = HARD[0]
    with pytest.raises(InvalidInputError, match=r"squared_to_landmarks has shape \(1, 4\); it must have 1 dimension"):
        reconstruction_arc(model, [row], 5)
