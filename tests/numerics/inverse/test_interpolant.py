"""The inverse map: scipy's interpolants, the paper's formulas by brute force, and neighborhoods gone wrong."""

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator
from scipy.spatial.distance import cdist

from pipeline.errors import InvalidInputError
from pipeline.numerics.inverse import algebra
from pipeline.numerics.inverse.interpolant import CUBIC, invert, nearest_nodes, stencils
from pipeline.numerics.inverse.neighborhood import NOBODY, Kernel
from pipeline.numerics.inverse.systems import DROPPED, ILL_CONDITIONED, MERGED, NOT_UNISOLVENT, REGULARIZED, UNDEFINED

GAUSSIAN, SHEPARD = Kernel("gaussian", scale=0.7), Kernel("shepard")
# About how far the points of a problem are from each other.
SPACING = 0.3
# Our kernel, and the same as arguments of scipy's.
PAIRS = [
    (CUBIC, {"kernel": "cubic"}),
    (Kernel(degree=2), {"kernel": "cubic", "degree": 2}),
    (Kernel(power=1), {"kernel": "linear"}),
    (Kernel(power=5), {"kernel": "quintic"}),
    (Kernel("thin_plate"), {"kernel": "thin_plate_spline"}),
    (GAUSSIAN, {"kernel": "gaussian", "epsilon": 0.7 / SPACING, "degree": -1}),
    (Kernel("gaussian", scale=0.7, degree=1), {"kernel": "gaussian", "epsilon": 0.7 / SPACING, "degree": 1}),
]
INTERPOLANTS = [*(kernel for kernel, _ in PAIRS), Kernel(power=7), Kernel("thin_plate", power=4)]


def problem(rng: np.random.Generator, n: int = 150, d: int = 3, n_columns: int = 7, q: int = 20):
    """Queries among points, and rows that depend smoothly on them, with noise."""
    points, queries = rng.normal(size=(n, d)), 0.7 * rng.normal(size=(q, d))
    values = np.sin(points @ rng.normal(size=(d, n_columns))) + 0.1 * rng.normal(size=(n, n_columns))
    return queries, points, values


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(("kernel", "arguments"), PAIRS)
@pytest.mark.parametrize(("d", "k"), [(2, 20), (5, 60), (3, 150)])
def test_equals_scipy_on_the_same_neighborhoods(rng, kernel, arguments, d, k):
    queries, points, values = problem(rng, d=d)
    expected = RBFInterpolator(points, values, neighbors=k, **arguments)(queries)
    found = invert(queries, points, values, nearest_nodes(points, queries, k), kernel, SPACING)
    assert relative(found.values, expected) < 1e-8
    assert not found.stencils.flags.any()


def test_the_default_is_the_cubic_on_the_200_nearest(rng):
    queries, points, values = problem(rng, n=400)
    expected = RBFInterpolator(points, values, neighbors=200, kernel="cubic")(queries)
    assert relative(invert(queries, points, values).values, expected) < 1e-8
    assert nearest_nodes(points, queries).shape == (20, 200)
    assert nearest_nodes(points[:50], queries).shape == (20, 50)


@pytest.mark.parametrize("kernel", INTERPOLANTS)
def test_nodes_are_interpolated(rng, kernel):
    _, points, values = problem(rng)
    found = invert(points[:30], points, values, nearest_nodes(points, points[:30], 50), kernel, SPACING)
    assert relative(found.values, values[:30]) < 1e-8
    np.testing.assert_array_equal(found.stencils.distance, 0)


def monomials(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """Some that span degree 3 in the plane or less."""
    all_of_them = [np.ones_like(x), x, y, x * y, x * x - y, x * x + y * y, x**3, x * x * y, x * y * y, y**3 + x]
    return np.stack(all_of_them[: (degree + 1) * (degree + 2) // 2], axis=1)


@pytest.mark.parametrize(
    ("kernel", "degree"),
    [
        (CUBIC, 1),
        (Kernel(power=1), 0),
        (Kernel(power=5), 2),
        (Kernel(power=7), 3),
        (Kernel(degree=3), 3),
        (Kernel("thin_plate"), 1),
        (Kernel("thin_plate", power=4), 2),
        (Kernel("gaussian", degree=1), 1),
        (SHEPARD, 0),
    ],
)
def test_polynomials_of_the_degree_are_reproduced_away_from_the_nodes_too(rng, kernel, degree):
    queries, points, _ = problem(rng, d=2)
    found = invert(3 * queries, points, monomials(*points.T, degree), nearest_nodes(points, queries, 40), kernel)
    expected = monomials(*(3 * queries.T), degree)
    np.testing.assert_allclose(found.values, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_shepard_is_the_weighted_mean_of_the_paper(rng, scale):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 30)
    found = invert(queries, points, values, near, Kernel("shepard", scale=scale), fill_distance=0.8)
    for query, nodes, value in zip(queries, near, found.values, strict=True):
        weights = np.exp(-((scale / 0.8) ** 2) * ((query - points[nodes]) ** 2).sum(axis=1))
        np.testing.assert_allclose(value, weights @ values[nodes] / weights.sum(), rtol=1e-10)


def test_shepard_far_away_is_the_nearest_row_and_not_0_over_0(rng):
    _, points, values = problem(rng)
    far = np.full((1, 3), 1e6)
    found = invert(far, points, values, kernel=SHEPARD)
    np.testing.assert_allclose(found.values[0], values[np.argmin(cdist(far, points))], rtol=1e-12)


def own_fill_distance(nodes: np.ndarray) -> float:
    apart = cdist(nodes, nodes) + np.diag(np.full(len(nodes), np.inf))
    return float(apart.min(axis=1).mean())


def test_scales_go_by_the_fill_distance_of_each_neighborhood_unless_given(rng):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 25)
    found = invert(queries, points, values, near, GAUSSIAN)
    for i, nodes in enumerate(near):
        fill = own_fill_distance(points[nodes])
        assert found.stencils.fill_distance[i] == pytest.approx(fill, rel=1e-12)
        given = invert(queries[i : i + 1], points, values, near[i : i + 1], GAUSSIAN, fill_distance=fill)
        np.testing.assert_allclose(found.values[i], given.values[0], rtol=1e-9)


def test_what_a_query_is_made_of_is_told(rng):
    queries, points, values = problem(rng)
    found = invert(queries, points, values, nearest_nodes(points, queries, 25))
    told = found.stencils
    np.testing.assert_allclose(told.distance, cdist(queries, points).min(axis=1), rtol=1e-12)
    np.testing.assert_allclose(told.remoteness, told.distance / told.fill_distance, rtol=1e-14)
    np.testing.assert_allclose(told.amplification, np.abs(told.weights).sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(
        found.values, np.einsum("qk,qkD->qD", told.weights, values[told.neighborhoods]), atol=1e-12
    )
    np.testing.assert_allclose(told.weights.sum(axis=1), 1, rtol=1e-12)


def test_queries_outside_the_embedding_are_remote_and_amplify(rng):
    queries, points, values = problem(rng)
    inside, outside = (invert(place, points, values).stencils for place in (queries, queries + 30))
    assert outside.remoteness.min() > 10 * inside.remoteness.max()
    assert outside.amplification.min() > 2 * inside.amplification.max()


@pytest.mark.parametrize("d", [2, 5, 10])
def test_a_query_so_far_away_that_values_are_rounding_is_flagged(rng, d):
    """The cubic's part beside the polynomial is lost to rounding from about 1e8 neighborhoods' sizes on."""
    _, points, values = problem(rng, d=d)
    direction = points[:1] / np.linalg.norm(points[0])
    flags = [invert(far * direction, points, values).stencils.flags[0] for far in (1.0, 1e2, 1e4, 1e8, 1e20, 1e100)]
    assert flags == [0, 0, 0, ILL_CONDITIONED, ILL_CONDITIONED, ILL_CONDITIONED]
    assert invert(1e104 * direction, points, values).stencils.flags[0] & UNDEFINED


@pytest.mark.parametrize("kernel", [CUBIC, Kernel(power=5), GAUSSIAN, SHEPARD])
def test_a_query_has_the_same_bytes_whatever_stands_beside_it(rng, kernel):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 40)
    near[3:9] = near[3]  # some share a neighborhood
    together = invert(queries, points, values, near, kernel)
    for rows in (slice(0, 1), slice(4, 20), slice(None, None, -3), [5, 5, 3]):
        apart = invert(queries[rows], points, values, near[rows], kernel)
        np.testing.assert_array_equal(apart.values, together.values[rows])
        for name in ("weights", "condition", "amplification", "distance", "fill_distance", "flags"):
            np.testing.assert_array_equal(getattr(apart.stencils, name), getattr(together.stencils, name)[rows])


def test_the_order_in_which_nodes_are_listed_does_not_matter(rng):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 40)
    shuffled = rng.permuted(near, axis=1)
    found, other = stencils(queries, points, near), stencils(queries, points, shuffled)
    for i in range(len(queries)):
        expected = dict(zip(near[i], found.weights[i], strict=True))
        assert expected == dict(zip(shuffled[i], other.weights[i], strict=True))
    np.testing.assert_array_equal(other.combine(values), found.combine(values))


@pytest.mark.parametrize(("unit", "offset"), [(1e-140, 0.0), (1e-6, 1.0), (1e12, -1e14), (1e140, 0.0)])
@pytest.mark.parametrize("kernel", [CUBIC, Kernel("thin_plate"), Kernel("gaussian"), SHEPARD])
def test_values_do_not_depend_on_the_unit_and_origin_of_coordinates(rng, unit, offset, kernel):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 30)
    expected = invert(queries, points, values, near, kernel)
    found = invert(queries * unit + offset, points * unit + offset, values, near, kernel)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-7)
    np.testing.assert_allclose(found.stencils.remoteness, expected.stencils.remoteness, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_rows_may_be_of_any_type(rng, dtype):
    queries, points, _ = problem(rng)
    values = rng.integers(0, 256, size=(150, 5)).astype(dtype)
    found = stencils(queries, points.astype(np.float32), nearest_nodes(points, queries, 20)).combine(values)
    expected = RBFInterpolator(points.astype(np.float32), values.astype(float), neighbors=20, kernel="cubic")(queries)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_no_queries_no_values(rng):
    _, points, values = problem(rng)
    found = invert(np.empty((0, 3)), points, values)
    assert found.values.shape == (0, 7)
    assert found.stencils.remoteness.shape == (0,)


@pytest.mark.parametrize("kernel", [CUBIC, Kernel(power=5), GAUSSIAN])
def test_nodes_that_coincide_are_one_with_the_mean_of_their_rows(rng, kernel):
    queries, points, values = problem(rng, n=60)
    repeated = np.concatenate([points, points[:5], points[:2]])
    rows = np.concatenate([values, rng.normal(size=(7, 7))])
    means = values.copy()
    means[:2] = (values[:2] + rows[60:62] + rows[65:67]) / 3
    means[2:5] = (values[2:5] + rows[62:65]) / 2
    everyone = np.tile(np.arange(67), (20, 1))
    found = invert(queries, repeated, rows, everyone, kernel, fill_distance=1.0)
    expected = invert(queries, points, means, everyone[:, :60], kernel, fill_distance=1.0)
    assert relative(found.values, expected.values) < 1e-8
    assert (found.stencils.flags == MERGED).all()
    assert (expected.stencils.flags == 0).all()
    np.testing.assert_allclose(found.stencils.fill_distance, expected.stencils.fill_distance, rtol=1e-12)


def test_shepard_counts_coinciding_nodes_as_often_as_they_are(rng):
    queries, points, values = problem(rng, n=30)
    near = np.tile([*range(30), 4, 4, 9], (20, 1))
    found = invert(queries, points, values, near, SHEPARD, fill_distance=1.0)
    weights = np.exp(-cdist(queries, points, "sqeuclidean")) * np.bincount(near[0])
    np.testing.assert_allclose(found.values, weights @ values / weights.sum(axis=1, keepdims=True), rtol=1e-10)


@pytest.mark.parametrize("copies", [1, 6])
@pytest.mark.parametrize("kernel", [CUBIC, GAUSSIAN, SHEPARD])
def test_a_single_place_has_its_row_everywhere(rng, copies, kernel):
    points, values = np.ones((copies, 3)), rng.normal(size=(copies, 4))
    found = invert(rng.normal(size=(5, 3)), points, values, kernel=kernel)
    np.testing.assert_allclose(found.values, np.tile(values.mean(axis=0), (5, 1)), rtol=1e-12)
    assert np.isinf(found.stencils.remoteness).all()
    assert (found.stencils.flags & MERGED == (MERGED if copies > 1 else 0)).all()


@pytest.mark.parametrize("spread", [0.0, 1e-9])
def test_nodes_in_a_plane_are_interpolated_along_it_and_the_linear_part_has_nothing_across(rng, spread):
    """As in the plane itself, whichever way that lies; a tilted one shows that no single coordinate was dropped."""
    queries, flat, values = problem(rng, n=60, d=2)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    points = np.pad(flat, ((0, 0), (0, 3))) + spread * rng.normal(size=(60, 5))
    everyone = np.tile(np.arange(60), (20, 1))
    within = invert(np.pad(queries, ((0, 0), (0, 3))) @ turn, points @ turn, values, everyone)
    assert relative(within.values, invert(queries, flat, values, everyone).values) < 1e-7
    assert (within.stencils.flags == NOT_UNISOLVENT).all()
    linear = flat @ rng.normal(size=(2, 4))
    above = np.pad(queries, ((0, 0), (0, 3)), constant_values=2.0) @ turn
    off_plane = invert(above, points @ turn, linear, everyone)
    np.testing.assert_allclose(off_plane.values, invert(queries, flat, linear, everyone).values, atol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_fewer_nodes_than_coordinates_and_one_more(rng, k):
    """A linear interpolant along what they span: right where the data is so, and at the nodes in any case."""
    _, points, values = problem(rng, d=5)
    near = np.tile(np.arange(k), (6, 1))
    shares = rng.dirichlet(np.ones(k), size=6)
    found = invert(shares @ points[:k], points, values, near)
    np.testing.assert_allclose(found.values, shares @ values[:k], atol=1e-9)
    assert (found.stencils.flags == NOT_UNISOLVENT).all()
    across = np.linalg.qr(np.column_stack([(points[1:k] - points[0]).T, rng.normal(size=5)]))[0][:, -1]
    off = invert(shares @ points[:k] + across, points, values, near)
    np.testing.assert_allclose(off.values, found.values, atol=1e-9)


def test_squares_on_a_sphere_depend_on_each_other(rng):
    queries, points, _ = problem(rng, n=120)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    slopes = rng.normal(size=(3, 4))
    found = invert(np.concatenate([queries, points]), points, np.sin(points @ slopes), kernel=Kernel(power=5))
    assert (found.stencils.flags == NOT_UNISOLVENT).all()
    assert relative(found.values[20:], np.sin(points @ slopes)) < 1e-8
    np.testing.assert_allclose(found.values[:20], np.sin(queries @ slopes), atol=0.03)


def test_more_terms_than_nodes(rng):
    queries, points, values = problem(rng, n=30, d=8)
    found = invert(np.concatenate([queries, points]), points, values, kernel=Kernel(power=7))
    assert (found.stencils.flags == NOT_UNISOLVENT).all()
    assert relative(found.values[20:], values) < 1e-8


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_nodes_and_rows_that_are_not_finite_are_left_out(rng, bad):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 30)
    points[near[0, 3], 1], values[near[0, 5], 2] = bad, np.nan
    found = invert(queries, points, values, near)
    touched = np.isin(near, near[0, [3, 5]])
    np.testing.assert_array_equal(found.stencils.flags, np.where(touched.any(axis=1), DROPPED, 0))
    expected = invert(queries[:1], points, values, np.delete(near[:1], [3, 5], axis=1))
    np.testing.assert_array_equal(found.values[0], expected.values[0])
    np.testing.assert_array_equal(found.stencils.weights[0, [3, 5]], 0)


@pytest.mark.parametrize("kernel", [CUBIC, GAUSSIAN, SHEPARD])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_query_that_is_not_finite_is_undefined_and_others_are_not_touched(rng, kernel, bad):
    queries, points, values = problem(rng)
    near = np.tile(np.arange(20), (20, 1))
    expected = invert(queries, points, values, near, kernel)
    queries[4, 1] = bad
    found = invert(queries, points, values, near, kernel)
    others = np.arange(20) != 4
    np.testing.assert_array_equal(found.values[others], expected.values[others])
    np.testing.assert_array_equal(found.stencils.flags, np.where(others, 0, UNDEFINED))
    assert np.isnan(found.values[4]).all()
    assert np.isnan(found.stencils.remoteness[4])


def test_a_query_without_nodes_is_undefined(rng):
    queries, points, values = problem(rng)
    near = nearest_nodes(points, queries, 10)
    near[3], near[5, 2:] = NOBODY, NOBODY
    found = invert(queries, points, values, near)
    assert found.stencils.flags[3] == UNDEFINED
    assert np.isnan(found.values[3]).all()
    assert found.stencils.flags[5] == NOT_UNISOLVENT
    assert np.isfinite(np.delete(found.values, 3, axis=0)).all()


def test_the_search_for_nodes_passes_by_what_is_not_finite(rng):
    queries, points, _ = problem(rng)
    points[7, 0], queries[2, 1] = np.nan, np.inf
    near = nearest_nodes(points, queries, 12)
    assert (near[2] == NOBODY).all()
    usable = np.delete(np.arange(150), 7)
    apart = cdist(queries[:1], points[usable])
    np.testing.assert_array_equal(near[0], usable[np.argsort(apart[0])[:12]])
    assert nearest_nodes(np.full((3, 3), np.nan), queries).tolist() == [[NOBODY]] * 20


@pytest.mark.parametrize("apart", [1e-6, 2e-7])
def test_nodes_that_nearly_coincide_are_flagged(rng, apart):
    """Rows that contradict each other so near to each other make the interpolant swing; the weights' sizes tell."""
    queries, points, values = problem(rng, n=80)
    plain = invert(queries, points, values).stencils
    points[1] = points[0] + [apart * np.ptp(points) / 2, 0, 0]
    found = invert(queries, points, values)
    np.testing.assert_array_equal(found.stencils.flags | REGULARIZED, ILL_CONDITIONED | REGULARIZED)
    assert np.isfinite(found.values).all()
    assert np.median(found.stencils.amplification) > 100 * np.median(plain.amplification)


@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("far", [1e3, 1e4, 1e5])
def test_a_node_far_from_the_others_takes_no_digits_from_them(rng, d, far):
    points = np.concatenate([rng.normal(size=(100, d)), far * np.eye(1, d)])
    values = np.stack([np.cos(points[:, 0]), np.sin(points[:, 1])], axis=1)
    places = np.concatenate([points[:100], 0.5 * (points[:50] + points[50:100])])
    found = invert(places, points, values)
    assert relative(found.values[:100], values[:100]) < 1e-8
    assert relative(found.values, RBFInterpolator(points, values, kernel="cubic")(places)) < 1e-8
    assert not found.stencils.flags.any()
    alone = invert(places[7:8], points, values)
    np.testing.assert_array_equal(alone.values, found.values[7:8])
    # Out there the distances to all others are alike, and what tells them apart is rounding.
    beside = invert(points[100:], points, values)
    assert beside.stencils.flags[0] == ILL_CONDITIONED or relative(beside.values, values[100:]) < 1e-4


def test_nodes_that_a_far_one_makes_seem_to_coincide_are_flagged(rng):
    points = np.concatenate([rng.normal(size=(100, 2)), [[1e9, 0.0]]])
    assert (invert(points, points, points).stencils.flags & MERGED).all()


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_elimination_solves_what_has_zeros_on_its_diagonal(rng, size):
    matrix, right_side = rng.normal(size=(size, size)), rng.normal(size=size)
    np.fill_diagonal(matrix, 0.0 if size > 1 else 2.0)
    left, rows = matrix.copy(), np.empty(size, dtype=np.int64)
    assert algebra.is_eliminated(left, rows)
    lower, upper = np.tril(left, -1) + np.eye(size), np.triu(left)
    np.testing.assert_allclose(lower @ upper, matrix[rows], atol=1e-12)
    solution = algebra.solve_eliminated(left, rows, right_side)
    np.testing.assert_allclose(matrix @ solution, right_side, atol=1e-10 * (1 + np.abs(solution).max()))
    assert not algebra.is_eliminated(np.zeros((size, size)), rows)
    assert not algebra.is_eliminated(np.full((size, size), np.nan), rows)


def test_a_gaussian_wider_than_double_precision_is_made_solvable_and_flagged(rng):
    queries, points, _ = problem(rng)
    smooth = points @ rng.normal(size=(3, 4))
    found = invert(queries, points, smooth, nearest_nodes(points, queries, 50), Kernel("gaussian", scale=0.01))
    assert (found.stencils.flags & REGULARIZED > 0).all()
    assert (found.stencils.condition > 1e12).all()
    np.testing.assert_allclose(found.values, invert(queries, points, smooth).values, atol=1e-2)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("exponent", [0, 3, 9])
def test_the_factor_its_solutions_and_the_norms(rng, size, exponent):
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = (turn * np.logspace(0, -exponent, size)) @ turn.T
    matrix = (matrix + matrix.T) / 2
    factor, right_side = np.full((size + 3, size + 3), np.nan), rng.normal(size=size)
    assert algebra.has_factor(np.pad(np.triu(matrix), (0, 3)), size, 0.0, factor)
    upper = np.triu(factor[:size, :size])
    np.testing.assert_allclose(upper.T @ upper, matrix, atol=1e-13)
    solution = right_side.copy()
    algebra.solve(factor, solution)
    np.testing.assert_allclose(matrix @ solution, right_side, atol=1e-13 * (1 + np.abs(solution).max()))
    assert algebra.norm_of(matrix, np.empty(size)) == pytest.approx(np.linalg.norm(matrix, 1), rel=1e-12)
    truth = np.linalg.norm(np.linalg.inv(matrix), 1)
    assert truth / 3 < algebra.norm_of_inverse(factor, np.empty(size), np.empty(size)) < truth * (1 + 1e-5)


def test_no_factor_of_what_is_not_positive_definite(rng):
    matrix = np.diag([1.0, 1e-16, 1.0])
    factor = np.empty((3, 3))
    assert not algebra.has_factor(matrix, 3, 0.0, factor)
    assert algebra.has_factor(matrix, 3, 1e-3, factor)
    assert not algebra.has_factor(np.array([[1.0, 2.0], [2.0, 1.0]]), 2, 0.0, factor)
    assert not algebra.has_factor(np.full((2, 2), np.nan), 2, 0.0, factor)


def test_the_condition_is_that_of_the_kernel_matrix_where_there_is_no_polynomial(rng):
    queries, points, _ = problem(rng)
    near = nearest_nodes(points, queries, 40)
    found = stencils(queries, points, near, GAUSSIAN, fill_distance=0.5)
    for nodes, estimate in zip(near, found.condition, strict=True):
        truth = np.linalg.cond(np.exp(-((0.7 / 0.5) ** 2) * cdist(points[nodes], points[nodes], "sqeuclidean")), 1)
        assert truth / 3 < estimate < truth * 1.001


@pytest.mark.parametrize("kernel", [CUBIC, Kernel("gaussian", degree=1)])
def test_the_condition_is_that_of_the_whole_system_where_there_is_one(rng, kernel):
    """By the block of its inverse that belongs to the nodes, in their own unit."""
    queries, points, _ = problem(rng)
    near = nearest_nodes(points, queries, 40)
    found = stencils(queries, points, near, kernel)
    for nodes, fill, estimate in zip(near, found.fill_distance, found.condition, strict=True):
        apart = cdist(points[nodes], points[nodes])
        kernels = apart**3 if kernel == CUBIC else np.exp(-((apart / fill) ** 2))
        polynomials = np.column_stack([np.ones(40), points[nodes]])
        system = np.block([[kernels, polynomials], [polynomials.T, np.zeros((4, 4))]])
        truth = np.linalg.norm(kernels, 1) * np.linalg.norm(np.linalg.inv(system)[:40, :40], 1)
        assert truth / 3 < estimate < truth * 1.1


def test_the_cubic_is_better_conditioned_than_a_wide_gaussian_and_hardly_minds_more_nodes(rng):
    """[M fig. 1, 2], on the first part of a sphere in 5 dimensions."""
    points = np.abs(rng.normal(size=(200, 5)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    cubic, gaussian = (
        [stencils(points[:1], points, np.arange(n)[None], kernel).condition[0] for n in (50, 200)]
        for kernel in (CUBIC, Kernel("gaussian", scale=0.1))
    )
    assert cubic[1] < 1e7
    assert gaussian[1] > 1e3 * cubic[1]
    assert gaussian[1] / gaussian[0] > 10 * cubic[1] / cubic[0]


def test_the_error_falls_faster_than_the_square_of_the_fill_distance(rng):
    errors = []
    for side in (8, 16, 32):
        grid = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 2), axis=-1).reshape(-1, 2)
        queries = rng.uniform(0.2, 0.8, size=(30, 2))
        found = invert(queries, grid, np.sin(3 * grid.sum(axis=1, keepdims=True)), nearest_nodes(grid, queries, 40))
        errors.append(np.abs(found.values - np.sin(3 * queries.sum(axis=1, keepdims=True))).max())
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


POINTS, VALUES = np.eye(4)[:, :3], np.ones((4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Kernel("cubic"), r"kind='cubic' is not known; use one of 'power', 'thin_plate'"),
        (lambda: Kernel(power=2), r"power=2 is not available for kind='power'; use one of 1, 3, 5, 7"),
        (lambda: Kernel("gaussian", power=3), r"power=3 .* leave it out"),
        (lambda: Kernel("shepard", scale=0.0), r"scale=0.0 is out of range"),
        (lambda: Kernel(power=5, degree=1), r"degree=1 is out of range; use one from 2 to 3"),
        (lambda: Kernel("shepard", degree=0), r"degree=0 is out of range; use one from -1 to -1"),
        (lambda: Kernel(power=7).terms(50), r"23426 terms in 50 coordinates, more than 5000; use a lower power"),
        (lambda: invert(POINTS[:, :2], POINTS, VALUES), r"queries has 2 columns and points 3"),
        (lambda: invert(POINTS, POINTS, VALUES[:3]), r"values has 3 rows and points 4"),
        (lambda: invert(POINTS, POINTS, VALUES, [[0, 4]] * 4), r"neighborhoods has 4; .* from 0 to 3"),
        (lambda: invert(POINTS, POINTS, VALUES, [[0, -2]] * 4), r"neighborhoods has -2"),
        (lambda: invert(POINTS, POINTS, VALUES, [[0, 1]]), r"neighborhoods has shape \(1, 2\) .* must be \(4, k\)"),
        (lambda: invert(POINTS, POINTS, VALUES, fill_distance=-1.0), r"fill_distance=-1.0 is out of range"),
        (lambda: stencils(POINTS, POINTS, [[0, 3]] * 4).combine(VALUES[:3]), r"values has shape \(3, 2\); .* least 4"),
        (lambda: nearest_nodes(POINTS, POINTS, 0), r"n_neighbors=0 is out of range"),
    ],
)
def test_what_cannot_be_inverted_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
