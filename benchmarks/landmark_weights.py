"""What `landmark_weights` does to the embedding: the table of docs/methods.md.

How far landmark embeddings are from that with every point a landmark, after the rigid motion that aligns the two: root
mean square distance in units of the spread. Run with `python -m benchmarks.landmark_weights`.
"""

import numpy as np
from sklearn.datasets import load_digits

from pipeline import LandmarkIsomap
from pipeline.methods import LANDMARK_WEIGHTS
from pipeline.numerics.registration import rigid_motion, rms_distance
from pipeline.types import FloatArray

N_NEIGHBORS, SELECTIONS, COUNTS = 10, ("maxmin", "random", "kmeans"), (50, 200)


def main() -> None:
    digits = load_digits().data
    print("| data | landmarks | none | counts |")
    print("|---|---|---|---|")
    for name, method, points, d in (
        ("uneven roll, isomap", "isomap", uneven_roll(2000), 2),
        ("digits, isomap", "isomap", digits, 5),
        ("digits, mds", "mds", digits, 5),
    ):
        whole = embedded(points, method, d, len(points), "random", "none")
        for selection in SELECTIONS:
            for m in COUNTS:
                errors = (error(embedded(points, method, d, m, selection, way), whole) for way in LANDMARK_WEIGHTS)
                print(f"| {name} | {m} {selection} | {' | '.join(f'{value:.3f}' for value in errors)} |")


def uneven_roll(n_points: int) -> FloatArray:
    """A Swiss roll with most of its points near the axis."""
    rng = np.random.default_rng(0)
    t = 1.5 * np.pi * (1 + 2 * rng.beta(1, 4, n_points))
    return np.column_stack([t * np.cos(t), 21 * rng.random(n_points), t * np.sin(t)])


def embedded(points: FloatArray, method: str, d: int, m: int, selection: str, weights: str) -> FloatArray:
    isomap = LandmarkIsomap(
        N_NEIGHBORS,
        d,
        method=method,
        n_landmarks=m,
        landmark_selection=selection,
        landmark_weights=weights,
        random_state=0,
    )
    return isomap.fit(points).embedding_


def error(embedding: FloatArray, whole: FloatArray) -> float:
    spread = float(np.sqrt(((whole - whole.mean(axis=0)) ** 2).sum(axis=1).mean()))
    return rms_distance(rigid_motion(embedding, whole).apply(embedding), whole) / spread


if __name__ == "__main__":
    main()
