"""The secular equation of restricted reconstruction, solved for its global minimizer [T eq. 10, 12, sec. 5].

Minimize 2||Xy - b||^2 + w (y'y - beta)^2. With X'X = diag(lam), lam descending and positive, c = X'b and mu = w (y'y -
beta), a stationary point satisfies (lam_k + mu) y_k = c_k. It is a global minimizer if and only if mu >= -lam_d, as

    F(z) - F(y) = 2 (z - y)'(diag(lam) + mu I)(z - y) + w (z'z - y'y)^2.

So there is one interval to search where [T sec. 5] considers d + 1, and on it

    phi(mu) = S(mu) - mu/w - beta,   S(mu) = sum_k (c_k / (lam_k + mu))^2,

strictly decreases: one root, or none (the hard case: mu = -lam_d).

No brackets are needed. S^(-1/2) is concave (Cauchy-Schwarz on S, S', S''), so its tangent at any point gives a model a
/ (mu + b)^2 <= S that touches there, whose root never exceeds the true one. Solving the model repeatedly (a cubic with
one positive root) climbs to the root from the left, monotonically and at least quadratically, however close the pole
is. The unknown and the poles are measured from an origin near the root, 0 or -lam_d: near the pole x = mu - origin
keeps the full relative precision that y_d = c_d / x needs.
"""

import math

import numpy as np

from pipeline.numerics.compiled import compiled, inlined
from pipeline.types import AnyArray, BoolArray, FloatArray

# In units of lam_1: an inner product below this does not change the objective; above it, squares and their inverses
# stay within double precision.
NEGLIGIBLE = 1e-140
# A point is ambiguous if its reflection in the last eigenspace fits equally well up to this relative difference: a few
# orders above rounding in c and lam, far below a genuine preference.
AMBIGUITY_TOLERANCE = 1e-10
MAX_ITERATIONS = 200


def solve_secular(
    eigenvalues: FloatArray, inner: FloatArray, beta: FloatArray, weight: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Global minimizers (p, d), multipliers (p,) and ambiguity flags (p,) of p problems: inner (p, d), beta (p,),
    weight w. In the hard case the free part goes to the last coordinate, positive. Units of a power of 4 near lam_1
    keep any scale from overflowing, and rescaling by powers of two gives the same bits."""
    exponent = int(np.frexp(eigenvalues[0])[1]) // 2
    unit = float(np.ldexp(1.0, exponent))
    scaled = eigenvalues / unit / unit, inner / unit / unit / unit, beta / unit / unit
    coordinates, multipliers, ambiguous = _solve_all(*scaled, weight)
    return coordinates * unit, multipliers * unit * unit, ambiguous


@compiled
def _solve_all(lam: AnyArray, inner: AnyArray, beta: AnyArray, w: float) -> tuple[FloatArray, FloatArray, BoolArray]:
    d = len(lam)
    coordinates, multipliers = np.empty_like(inner), np.empty_like(beta)
    ambiguous = np.empty(len(beta), dtype=np.bool_)
    gaps = lam - lam[d - 1]
    c = np.empty(d)
    for j in range(len(beta)):
        for k in range(d):
            c[k] = inner[j, k] if abs(inner[j, k]) > NEGLIGIBLE else 0.0
        y = coordinates[j]
        middle = -0.5 * lam[d - 1]
        # phi is positive left of the root, negative right of it.
        if _power_sums(lam, c, middle)[0] - middle / w - beta[j] >= 0.0:
            x = _root(lam, c, 0.0, middle, w, beta[j])
            _fill(y, lam, c, x)
            multipliers[j], ambiguous[j] = x, False
        else:
            x, free = _root_near_pole(gaps, c, 0.5 * lam[d - 1], w, beta[j] - lam[d - 1] / w)
            _fill(y, gaps, c, x)
            y[d - 1] += free
            multipliers[j] = x - lam[d - 1]
            ambiguous[j] = _is_ambiguous(lam, y, x)
    return coordinates, multipliers, ambiguous


@compiled
def _root_near_pole(poles: AnyArray, c: AnyArray, start: float, w: float, h: float) -> tuple[float, float]:
    """Root x >= 0 measured from -lam_d, and the free length along the last axis in the hard case."""
    pole_part, rest = 0.0, 0.0
    for k in range(len(c)):
        if poles[k] > 0.0:
            rest += (c[k] / poles[k]) ** 2
        else:
            pole_part += c[k] ** 2
    if pole_part == 0.0:
        if rest <= h:
            return 0.0, math.sqrt(h - rest)
        return _root(poles, c, start, 0.0, w, h), 0.0
    # The pole's own terms are below S, so their root is a positive lower bound: no iterate reaches the pole.
    return _root(poles, c, start, _model_root(pole_part, 0.0, w, h), w, h), 0.0


@compiled
def _root(poles: AnyArray, c: AnyArray, start: float, lowest: float, w: float, h: float) -> float:
    """The root of S(x) = x/w + h at or above `lowest`, where S has its poles at -poles."""
    x = _climb(poles, c, start, lowest, w, h)
    # The models determine x up to rounding of the poles; a Newton step on phi, up to rounding of S and h.
    s2, s3 = _power_sums(poles, c, x)
    return max(lowest, x + (s2 - x / w - h) / (2.0 * s3 + 1.0 / w))


@compiled
def _climb(poles: AnyArray, c: AnyArray, start: float, lowest: float, w: float, h: float) -> float:
    """Tangent models from below until the root no longer moves."""
    x = start
    climbing = False
    for _ in range(MAX_ITERATIONS):
        s2, s3 = _power_sums(poles, c, x)
        if s2 == 0.0:
            return max(lowest, -w * h)
        b = s2 / s3 - x
        following = max(lowest, _model_root(s2 * (s2 / s3) ** 2, b, w, h))
        if (climbing and following <= x) or abs(following - x) <= 4e-16 * abs(x):
            return following
        climbing = following > x
        x = following
    return x


@inlined
def _power_sums(poles: AnyArray, c: AnyArray, x: float) -> tuple[float, float]:
    """S and -S'/2: the sums of c^2/(pole + x)^2 and c^2/(pole + x)^3."""
    s2, s3 = 0.0, 0.0
    for k in range(len(c)):
        if c[k] != 0.0:
            inverse = 1.0 / (poles[k] + x)
            square = (c[k] * inverse) ** 2
            s2 += square
            s3 += square * inverse
    return s2, s3


@compiled
def _model_root(a: float, b: float, w: float, h: float) -> float:
    """The x > -b with a/(x + b)^2 = x/w + h: with s = x + b, the positive root of s^3 + q s^2 = a w, q = w h - b. In
    units of r = (a w)^(1/3), Newton's method approaches the root u of u^3 + kappa u^2 = 1 monotonically from the right,
    where the function is convex and increasing."""
    q = w * h - b
    r = float(np.cbrt(a * w))
    kappa = q / r
    u = min(1.0, 1.0 / math.sqrt(kappa)) if kappa > 0.0 else 1.0 - kappa
    for _ in range(MAX_ITERATIONS):
        following = u - ((u + kappa) * u * u - 1.0) / ((3.0 * u + 2.0 * kappa) * u)
        if not following < u:
            break
        u = following
    if kappa < -1.0:
        # x = s - b = -(w h) + (s + q): s - b cancels for large |kappa|, but s + q = a w / s^2 does not.
        return r / (u * u) - w * h
    return u * r - b


@inlined
def _fill(y: AnyArray, poles: AnyArray, c: AnyArray, x: float) -> None:
    for k in range(len(c)):
        y[k] = c[k] / (poles[k] + x) if c[k] != 0.0 else 0.0


@inlined
def _is_ambiguous(lam: AnyArray, y: AnyArray, x: float) -> bool:
    """Whether the reflection of y in the eigenspace of lam_d is distinct and equally good up to rounding. It costs 8
    c_free . y_free = 8 x |y_free|^2, little beside the objective's terms if x is small."""
    d = len(lam)
    tolerance = AMBIGUITY_TOLERANCE * lam[0]
    if x > tolerance:
        return False
    free, total = 0.0, 0.0
    for k in range(d):
        total += y[k] ** 2
        if lam[k] - lam[d - 1] <= tolerance:
            free += y[k] ** 2
    return free > AMBIGUITY_TOLERANCE * total
