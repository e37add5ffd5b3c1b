"""Synthetic data whose right embedding is known."""

from typing import Any, NamedTuple

import numpy as np
import scipy

from pipeline.types import FloatArray


class SwissRoll(NamedTuple):
    """points (n, 3): a sheet rolled up in space. sheet (n, 2): where each point lies on the flat sheet."""

    points: FloatArray
    sheet: FloatArray


def swiss_roll(n_points: int, seed: int, height: float = 21.0) -> SwissRoll:
    """Points spread evenly over the sheet, along the spiral t -> (t cos t, t sin t) for t from 1.5 pi to 4.5 pi."""
    rng = np.random.default_rng(seed)
    angles, lengths = _spiral()
    along = rng.uniform(lengths[0], lengths[-1], n_points)
    across = rng.uniform(0, height, n_points)
    t = np.interp(along, lengths, angles)
    points = np.column_stack([t * np.cos(t), across, t * np.sin(t)])
    return SwissRoll(points, np.column_stack([along, across]))


def bridged_roll(n_points: int, n_bridges: int, seed: int, n_neighbors: int = 10) -> FloatArray:
    """The points of a roll, and behind them others (n_points + n_bridges, 3), each in the gap between two turns, where
    about half of its `n_neighbors` nearest are on each of them."""
    roll, rng = swiss_roll(n_points, seed), np.random.default_rng(seed)
    angles, lengths = _spiral()
    inner = np.flatnonzero(roll.sheet[:, 0] < np.interp(2.4 * np.pi, angles, lengths))
    rows = rng.choice(inner, n_bridges, replace=False)
    turned = np.interp(roll.sheet[rows, 0], lengths, angles) + 2 * np.pi
    outside = np.column_stack([turned * np.cos(turned), roll.sheet[rows, 1], turned * np.sin(turned)])
    tree = scipy.spatial.KDTree(roll.points)
    starts, ends = roll.points[rows], roll.points[tree.query(outside)[1]]
    bridges = [_halfway(roll.points, tree, *pair, max(1, n_neighbors // 2)) for pair in zip(starts, ends, strict=True)]
    return np.concatenate([roll.points, np.array(bridges).reshape(-1, 3)])


def _halfway(points: FloatArray, tree: Any, start: FloatArray, end: FloatArray, n_each: int) -> FloatArray:
    """The place between two points that is as far from the `n_each`-th nearest of those around either."""
    near = [scipy.spatial.KDTree(points[tree.query(place, 8 * n_each)[1]]) for place in (start, end)]
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        place = start + middle * (end - start)
        apart = [float(np.atleast_1d(side.query(place, n_each)[0])[-1]) for side in near]
        low, high = (middle, high) if apart[0] < apart[1] else (low, middle)
    return start + low * (end - start)


def _spiral() -> tuple[FloatArray, FloatArray]:
    """Angles of the roll, and how far along it they are."""
    angles = np.linspace(1.5 * np.pi, 4.5 * np.pi, 20_001)
    return angles, (angles * np.sqrt(1 + angles**2) + np.arcsinh(angles)) / 2
