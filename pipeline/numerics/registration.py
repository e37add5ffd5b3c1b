"""The rigid motion that aligns two embeddings of the same points."""

from typing import NamedTuple

import numpy as np

from pipeline.types import BoolArray, FloatArray


class RigidMotion(NamedTuple):
    """x -> x @ turn + shift; `turn` (d, d) is orthogonal and may mirror, `shift` is (d,). The points determine the turn
    in `rank` directions only; in the others it is as near to the identity as possible."""

    turn: FloatArray
    shift: FloatArray
    rank: int

    def apply(self, points: FloatArray) -> FloatArray:
        return points @ self.turn + self.shift


def rigid_motion(points: FloatArray, onto: FloatArray) -> RigidMotion:
    """The motion that takes points (n, d) closest to others (n, d) by the sum of squared distances; lengths are kept.

    Orthogonal Procrustes (Schönemann 1966, Psychometrika 31): for centered A and B with U S V' the singular value
    decomposition of A'B, the orthogonal Q that minimizes |A Q - B| is U V'.
    """
    center, target = points.mean(axis=0), onto.mean(axis=0)
    a, b = _scaled(points - center), _scaled(onto - target)
    turn, rank = _nearest_turn(a.T @ b, len(points))
    return RigidMotion(turn, target - center @ turn, rank)


def shared_rows(points: FloatArray, onto: FloatArray) -> BoolArray:
    """Which rows have coordinates on both sides."""
    return np.asarray(np.isfinite(points).all(axis=1) & np.isfinite(onto).all(axis=1))


def rms_distance(points: FloatArray, others: FloatArray) -> float:
    """Root mean square distance between points and others, row by row."""
    largest = float(np.abs(points - others).max(initial=0.0))
    if not largest:
        return 0.0
    return float(largest * np.sqrt((((points - others) / largest) ** 2).sum(axis=1).mean()))


def _scaled(centered: FloatArray) -> FloatArray:
    """Scaled by a power of two, which is exact, so that products neither overflow nor vanish."""
    return np.ldexp(centered, -int(np.frexp(np.abs(centered).max(initial=0.0))[1]))


def _nearest_turn(products: FloatArray, n_points: int) -> tuple[FloatArray, int]:
    """U V' and the number of directions in which it is determined. Where singular values vanish, any orthogonal map
    between the left and right null spaces is as good. The one nearest to the identity does not depend on the bases that
    the decomposition happens to return."""
    u, s, vt = np.linalg.svd(products)
    rank = int(np.count_nonzero(s > s[0] * max(n_points, len(s)) * np.finfo(np.float64).eps))
    left, right = u[:, rank:], vt[rank:].T
    inner_u, _, inner_vt = np.linalg.svd(left.T @ right)
    return u[:, :rank] @ vt[:rank] + left @ (inner_u @ inner_vt) @ right.T, rank
