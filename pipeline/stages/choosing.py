"""Landmarks among candidates that are in memory, by any of the selections."""

from collections.abc import Callable

from pipeline.numerics.landmarks.greedy import kmeans_landmarks, pivoted_cholesky_landmarks, trace_landmarks
from pipeline.numerics.landmarks.sampling import farthest_points, random_landmarks
from pipeline.types import AnyArray, IntArray


def chosen_points(selection: str, points: AnyArray, first: int, n_landmarks: int, seed: int) -> IntArray:
    """Places of the chosen ones among points (c, D), no two the same; farthest ones are sought from `first` on."""
    choices: dict[str, Callable[[], IntArray]] = {
        "random": lambda: random_landmarks(len(points), n_landmarks, seed),
        "maxmin": lambda: farthest_points(points, first, n_landmarks),
        "kmeans": lambda: kmeans_landmarks(points, n_landmarks, seed),
        "trace": lambda: trace_landmarks(points, n_landmarks, seed),
        "cholesky": lambda: pivoted_cholesky_landmarks(points, n_landmarks, seed),
    }
    return choices[selection]()
