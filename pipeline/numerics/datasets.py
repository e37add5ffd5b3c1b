"""Synthetic data whose right embedding is known."""

from typing import NamedTuple

import numpy as np

from pipeline.types import FloatArray


class SwissRoll(NamedTuple):
    """points (n, 3): a sheet rolled up in space. sheet (n, 2): where each point lies on the flat sheet."""

    points: FloatArray
    sheet: FloatArray


def swiss_roll(n_points: int, seed: int, height: float = 21.0) -> SwissRoll:
    """Points spread evenly over the sheet, along the spiral t -> (t cos t, t sin t) for t from 1.5 pi to 4.5 pi."""
    rng = np.random.default_rng(seed)
    angles = np.linspace(1.5 * np.pi, 4.5 * np.pi, 20_001)
    lengths = (angles * np.sqrt(1 + angles**2) + np.arcsinh(angles)) / 2
    along = rng.uniform(lengths[0], lengths[-1], n_points)
    across = rng.uniform(0, height, n_points)
    t = np.interp(along, lengths, angles)
    points = np.column_stack([t * np.cos(t), across, t * np.sin(t)])
    return SwissRoll(points, np.column_stack([along, across]))
