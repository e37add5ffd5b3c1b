"""The global guarantee: never worse than independent solutions, on problems made to be hard.

10,000 generated problems are solved a second time in 80-bit extended precision by plain bisection, a sample of those in
60 digits by another route (every stationary point, over all d + 1 intervals of [T sec. 5]), and 200 by local
descents from random starts. Values are compared in extended precision.
"""

import mpmath
import numpy as np
import pytest

from pipeline.numerics.extension.secular import solve_secular

EXTENDED = np.longdouble
needs_extended_precision = pytest.mark.skipif(
    np.finfo(EXTENDED).eps > 2e-19, reason="this platform's long double is no wider than double"
)
KINDS = (
    "plain",
    "repeated eigenvalues",
    "c zero",
    "c orthogonal to the last eigenvectors",
    "near-hard",
    "beta negative",
    "beta zero",
    "beta huge",
    "on the edge of the hard case",
    "eigenvalues repeated up to rounding",
)
WEIGHTS = (1.0, 1000.0)


def generated_problem(seed):
    """(lam, c, beta, w): d from 1 to 20, scales from 1e-12 to 1e12."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    w = WEIGHTS[seed // len(KINDS) % 2]
    d = int(rng.integers(1, 21))
    n_last = int(rng.integers(1, d + 1))
    lam = generated_eigenvalues(rng, kind, d, n_last)
    c = generated_inner_products(rng, kind, lam, n_last)
    beta = generated_beta(rng, kind, lam, c, w)
    scale = 10.0 ** rng.uniform(-12, 12)
    return lam * scale**2, c * scale**3, beta * scale**2, w


def generated_eigenvalues(rng, kind, d, n_last):
    lam = np.sort(10 ** rng.uniform(-2, 3, d))[::-1].copy()
    if kind == "repeated eigenvalues" or (kind == "c orthogonal to the last eigenvectors" and rng.random() < 0.5):
        lam[-n_last:] = lam[-1]
    if kind == "eigenvalues repeated up to rounding":
        lam[-n_last:] = np.sort(lam[-1] * (1 + 1e-16 * rng.integers(0, 9, n_last)))[::-1]
    return lam


def generated_inner_products(rng, kind, lam, n_last):
    c = rng.normal(size=len(lam)) * lam * np.sqrt(lam[-1]) * 10 ** rng.uniform(-2, 2)
    if kind == "c zero":
        c[:] = 0
    if kind in ("c orthogonal to the last eigenvectors", "on the edge of the hard case"):
        c[lam == lam[-1]] = 0
    if kind in ("near-hard", "eigenvalues repeated up to rounding"):
        c[-n_last:] *= 10.0 ** -rng.uniform(4, 40)
    return c


def generated_beta(rng, kind, lam, c, w):
    if kind == "on the edge of the hard case":
        others = lam > lam[-1]
        rest = ((c[others] / (lam[others] - lam[-1])) ** 2).sum()
        return (lam[-1] / w + rest) * (1 + 1e-15 * rng.integers(-4, 5))
    beta = rng.exponential() * lam[-1] * 10 ** rng.uniform(-2, 3)
    return beta * {"beta negative": -1.0, "beta zero": 0.0, "beta huge": 1e12}.get(kind, 1.0)


def objective(lam, c, beta, w, y):
    """2 (y'diag(lam)y - 2c'y) + w (y'y - beta)^2 in the precision of y."""
    lam, c, beta = lam.astype(y.dtype), c.astype(y.dtype), y.dtype.type(beta)
    return 2 * (y * (lam * y - 2 * c)).sum() + y.dtype.type(w) * ((y * y).sum() - beta) ** 2


def bisected(lam, c, beta, w):
    """The minimizer by bisection on (-lam_d, inf) in extended precision."""
    lam, c = lam.astype(EXTENDED), c.astype(EXTENDED)
    beta, w = EXTENDED(beta), EXTENDED(w)
    gaps, height = lam - lam[-1], beta - lam[-1] / w
    active = c != 0
    at_pole = gaps == 0
    y = np.zeros_like(c)
    if not (active & at_pole).any():
        y[~at_pole] = c[~at_pole] / gaps[~at_pole]
        if (y**2).sum() <= height:
            y[-1] = np.sqrt(height - (y**2).sum())
            return y

    def excess(t):
        return ((c[active] / (gaps[active] + t)) ** 2).sum() - t / w - height

    high = lam[0]
    while excess(high) > 0:
        high *= 1024
    low = high
    while excess(low) < 0:
        low /= 1024
    for _ in range(90):
        middle = np.sqrt(low) * np.sqrt(high) if high > 2 * low else (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    y[:] = 0
    y[active] = c[active] / (gaps[active] + (low + high) / 2)
    return y


def relative_excess(problem, y, reference):
    """How much higher y is than the reference, relative to the size of the objective's terms at the reference."""
    lam, c, beta, w = problem
    found = objective(lam, c, beta, w, y.astype(EXTENDED))
    best = objective(lam, c, beta, w, reference.astype(EXTENDED))
    return float((found - best) / np.abs(best)) if best != 0 else float(found)


def solved(problem):
    lam, c, beta, w = problem
    coordinates, multipliers, ambiguous = solve_secular(lam, c[None], np.array([beta]), w)
    return coordinates[0], multipliers[0], ambiguous[0]


@needs_extended_precision
@pytest.mark.parametrize("batch", range(10))
def test_never_worse_than_an_extended_precision_solution_on_10000_problems(batch):
    for seed in range(batch * 1000, (batch + 1) * 1000):
        problem = generated_problem(seed)
        y, multiplier, _ = solved(problem)
        assert relative_excess(problem, y, bisected(*problem)) <= 1e-9, (seed, KINDS[seed % len(KINDS)])
        assert multiplier >= -problem[0][-1]


def descended(lam, c, beta, w, starts):
    """Where damped Newton steps (eigenvalues of the Hessian made positive, best of 24 step lengths) lead."""
    y = starts
    lengths = 0.5 ** np.arange(24)

    def value(y):
        return 2 * (y * (lam * y - 2 * c)).sum(axis=-1) + w * ((y * y).sum(axis=-1) - beta) ** 2

    for _ in range(60):
        slack = (y * y).sum(axis=1) - beta
        gradient = lam * y - c + w * slack[:, None] * y
        hessian = (lam + w * slack[:, None])[:, :, None] * np.eye(len(lam)) + 2 * w * y[:, :, None] * y[:, None, :]
        curvatures, axes = np.linalg.eigh(hessian)
        curvatures = np.maximum(np.abs(curvatures), 1e-12 * np.abs(curvatures).max())
        step = np.einsum("sij,sj,skj,sk->si", axes, 1 / curvatures, axes, gradient)
        tried = y - lengths[:, None, None] * step
        values = value(tried)
        best = values.argmin(axis=0)
        better = values[best, np.arange(len(y))] < value(y)
        if not better.any():
            break
        y = np.where(better[:, None], tried[best, np.arange(len(y))], y)
    return y


@needs_extended_precision
@pytest.mark.parametrize("batch", range(10))
def test_never_worse_than_the_best_of_50_random_starts_on_200_problems(batch):
    for seed in range(batch * 20, (batch + 1) * 20):
        problem = generated_problem(seed * 7)
        lam, c, beta, _ = problem
        radius = np.sqrt(abs(beta)) + np.linalg.norm(c / lam) + np.sqrt(lam[-1])
        starts = np.random.default_rng(seed).normal(size=(50, len(lam))) * radius / np.sqrt(len(lam))
        ends = descended(*problem, starts)
        best = ends[np.argmin([objective(*problem, y.astype(EXTENDED)) for y in ends])]
        y, _, _ = solved(problem)
        assert relative_excess(problem, y, best) <= 1e-9, seed
        # The descents are a real competitor: their best comes as low as double precision lets them tell.
        lowest = objective(*problem, y.astype(EXTENDED))
        resolution = np.abs(lowest) + problem[3] * EXTENDED(beta) ** 2
        assert objective(*problem, best.astype(EXTENDED)) - lowest <= 1e-6 * resolution, seed


@pytest.mark.parametrize("seed", range(60))
def test_is_the_lowest_of_all_stationary_points(seed):
    """All roots of phi over the d + 1 intervals between the poles, in 60 digits; simple eigenvalues, c nonzero."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    lam = np.sort(rng.uniform(1, 10, d))[::-1].copy()
    c, beta, w = rng.normal(size=d) * 3, float(rng.normal() * 20), WEIGHTS[seed % 2]
    with mpmath.workdps(60):
        L, C = [mpmath.mpf(v) for v in lam], [mpmath.mpf(v) for v in c]

        def value(y):
            linear = mpmath.fsum(2 * lam_k * v * v - 4 * k * v for lam_k, k, v in zip(L, C, y, strict=True))
            return linear + w * (mpmath.fsum(v * v for v in y) - beta) ** 2

        # phi times its denominators: a polynomial of degree 2d + 1 whose real roots are all stationary multipliers.
        polynomial = [mpmath.mpf(0)] * (2 * d + 2)  # lowest power first
        for i in range(d + 1):
            term = [C[i] ** 2] if i < d else [-mpmath.mpf(1) / w, -mpmath.mpf(beta)]
            for j in range(d):
                if j != i:
                    term = multiplied(multiplied(term, [1, L[j]]), [1, L[j]])
            for power, coefficient in enumerate(reversed(term)):
                polynomial[power] += coefficient
        roots = mpmath.polyroots(polynomial, maxsteps=500, extraprec=400, asc=True)
        stationary = [r.real for r in roots if abs(r.imag) < mpmath.mpf(10) ** -30]
        lowest = min(value([k / (lam_k + mu) for lam_k, k in zip(L, C, strict=True)]) for mu in stationary)
        y, _, _ = solved((lam, c, beta, w))
        assert value([mpmath.mpf(v) for v in y]) - lowest <= 1e-12 * abs(lowest)


def multiplied(a, b):
    product = [mpmath.mpf(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return product


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_equations_of_the_minimizer_hold(kind):
    for seed in range(kind, 2000, len(KINDS)):
        lam, c, beta, w = generated_problem(seed)
        y, mu, _ = solved((lam, c, beta, w))
        sizes = np.abs(c).max() + lam[0] * np.abs(y).max()
        np.testing.assert_allclose((lam + mu) * y, c, atol=1e-12 * sizes, rtol=0)
        np.testing.assert_allclose(w * (y @ y - beta), mu, rtol=1e-9, atol=1e-9 * (w * abs(beta) + lam[0]))


@pytest.mark.parametrize("exponent", [-150, -40, -3, 1, 40, 150])
def test_rescaling_by_a_power_of_two_rescales_the_bits(exponent):
    s = 2.0**exponent
    for seed in range(100):
        lam, c, beta, w = generated_problem(seed)
        unit = 2.0 ** round(np.log2(lam[0]) / 2)
        lam, c, beta = lam / unit**2, c / unit**3, beta / unit**2
        y, mu, ambiguous = solved((lam, c, beta, w))
        scaled_y, scaled_mu, scaled_ambiguous = solved((lam * s**2, c * s**3, beta * s**2, w))
        np.testing.assert_array_equal(scaled_y, y * s)
        assert (scaled_mu, scaled_ambiguous) == (mu * s**2, ambiguous)


def test_a_point_has_the_same_bytes_in_any_batch(rng):
    lam = np.array([9.0, 4.0, 4.0, 1.0])
    c, beta = rng.normal(size=(500, 4)) * 5, rng.normal(size=500) * 20
    whole = solve_secular(lam, c, beta, 1.0)
    for i in range(0, 500, 37):
        for all_rows, one in zip(whole, solve_secular(lam, c[i : i + 1], beta[i : i + 1], 1.0), strict=True):
            np.testing.assert_array_equal(one[0], all_rows[i])


class TestHardCase:
    """c has no part in the last eigenspace and beta is long: the free part is undetermined, a fixed rule decides."""

    def test_simple_eigenvalue_goes_to_the_positive_side_and_is_flagged(self):
        y, mu, ambiguous = solved((np.array([50.0, 32.0]), np.zeros(2), 400.0, 1.0))
        np.testing.assert_array_equal(y, [0, np.sqrt(368)])
        assert (mu, ambiguous) == (-32.0, True)

    def test_other_coordinates_are_determined(self):
        y, mu, ambiguous = solved((np.array([10.0, 4.0]), np.array([12.0, 0.0]), 50.0, 2.0))
        np.testing.assert_allclose(y, [12 / 6, np.sqrt(50 - 4 / 2 - 4)], rtol=1e-15)
        assert (mu, ambiguous) == (-4.0, True)

    def test_repeated_eigenvalue_uses_the_last_axis_of_the_sphere(self):
        y, _, ambiguous = solved((np.array([9.0, 2.0, 2.0]), np.array([7.0, 0.0, 0.0]), 30.0, 1.0))
        np.testing.assert_allclose(y, [1, 0, np.sqrt(30 - 2 - 1)], rtol=1e-15)
        assert ambiguous

    @pytest.mark.parametrize("tiny", [1e-300, -1e-200, 1e-100, 1e-50, -1e-20, 1e-14])
    def test_near_hard_case_is_continuous_and_flagged(self, tiny):
        y, _, ambiguous = solved((np.array([50.0, 32.0]), np.array([0.0, tiny]), 400.0, 1.0))
        np.testing.assert_allclose(np.abs(y), [0, np.sqrt(368)], rtol=1e-14)
        assert ambiguous

    def test_sign_follows_the_data_as_soon_as_there_is_any(self):
        for sign in (1, -1):
            y, _, ambiguous = solved((np.array([50.0, 32.0]), np.array([0.0, sign * 1e-3]), 400.0, 1.0))
            assert np.sign(y[1]) == sign
            assert not ambiguous

    def test_a_short_point_is_not_ambiguous(self):
        """On the near side of the hard case, and exactly on its edge, the two minimizers are one."""
        for beta in (0.0, 31.0, 32.0):
            y, _, ambiguous = solved((np.array([50.0, 32.0]), np.zeros(2), beta, 1.0))
            np.testing.assert_array_equal(y, [0, 0])
            assert not ambiguous
