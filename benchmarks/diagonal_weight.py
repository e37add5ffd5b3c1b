"""What `diagonal_weight` does as landmarks grow in number: the table of docs/extension.md.

Points lifted off a Swiss roll by 5 times the median edge against points on it: how far apart are the projection and the
restricted reconstruction of each? Run with `python -m benchmarks.diagonal_weight`.
"""

import numpy as np

from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension import project, restricted_reconstruction
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import rows_through_neighbors, shortest_path_rows
from pipeline.numerics.landmarks.choices import chosen_rows
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.numerics.neighbors.exact import nearest_neighbors, neighbors_within
from pipeline.types import FloatArray

N_TRAINING, N_NEW, N_NEIGHBORS = 8000, 1000, 10


def main() -> None:
    roll = swiss_roll(N_TRAINING + N_NEW, seed=0).points
    training, clean = roll[:N_TRAINING], roll[N_TRAINING:]
    distances, indices = neighbors_within(training, N_NEIGHBORS)
    graph = neighbor_graph(distances, indices)
    lifted = clean + 5 * np.median(distances) * normals(clean)
    print("| landmarks | weight | median gap on the roll | lifted | ratio |")
    print("|---|---|---|---|---|")
    weights: tuple[DiagonalWeight, ...] = (1.0, "balanced")
    for m in (50, 500, 2000):
        landmarks = chosen_rows("maxmin", training, m, seed=0)
        rows = shortest_path_rows(graph, landmarks)
        model = classical_mds(rows[:, landmarks] ** 2, 2)
        for weight in weights:
            on, off = (float(np.median(_gaps(model, training, points, rows.T, weight))) for points in (clean, lifted))
            print(f"| {m} | {weight} | {on:.2e} | {off:.2e} | {off / on:.0f} |")


def normals(points: FloatArray) -> FloatArray:
    """The direction across the spiral at each point of the roll, which is (t cos t, y, t sin t)."""
    t = np.hypot(points[:, 0], points[:, 2])
    cos, sin = points[:, 0] / t, points[:, 2] / t
    normal = np.column_stack([sin + t * cos, np.zeros_like(t), t * sin - cos])
    return np.asarray(normal / np.linalg.norm(normal, axis=1)[:, None])


def _gaps(
    model: LandmarkModel, training: FloatArray, points: FloatArray, to_landmarks: FloatArray, weight: DiagonalWeight
) -> FloatArray:
    distances, indices = nearest_neighbors(training, points, N_NEIGHBORS)
    squared = rows_through_neighbors(distances, indices, np.ascontiguousarray(to_landmarks)) ** 2
    restricted = restricted_reconstruction(model, squared, weight)
    return np.asarray(np.linalg.norm(restricted.coordinates - project(model, squared), axis=1))


if __name__ == "__main__":
    main()
