"""Points lifted off a Swiss roll, by the number of neighbors and the height: `python -m benchmarks.lifted`.

8,000 points fitted, 500 landmarks, balanced weight. Windings of the roll are about 6.28 apart. Beyond: the share of
lifted points whose residual is above the 99% quantile of fitted points taken as if they were new.
"""

import numpy as np

from benchmarks.diagonal_weight import normals
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import Placed, placed
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import rows_through_neighbors, shortest_path_rows
from pipeline.numerics.landmarks.choices import chosen_rows
from pipeline.numerics.mds import LandmarkModel, classical_mds
from pipeline.numerics.neighbors.exact import nearest_neighbors, neighbors_within
from pipeline.types import FloatArray, IntArray

N_TRAINING, N_NEW, N_LANDMARKS, N_EDGES = 8000, 1000, 500, 5
NEIGHBORS, FIXED_HEIGHTS = (7, 8, 9, 10, 12, 15), (2.5, 3.1, 3.8)


def main() -> None:
    roll = swiss_roll(N_TRAINING + N_NEW, seed=0).points
    training, clean = roll[:N_TRAINING], roll[N_TRAINING:]
    print("| neighbors | height | beyond | median gap over that of points on the roll |")
    print("|---|---|---|---|")
    for k in NEIGHBORS:
        edges, indices = neighbors_within(training, k)
        landmarks = chosen_rows("maxmin", training, N_LANDMARKS, seed=0)
        rows = np.ascontiguousarray(shortest_path_rows(neighbor_graph(edges, indices), landmarks, 2).T)
        model = classical_mds(rows[landmarks] ** 2, 2)
        limit = np.quantile(_placed(model, rows, edges, indices).residual, 0.99)
        gap = np.median(_placed(model, rows, *nearest_neighbors(training, clean, k)).gap)
        for height in (N_EDGES * float(np.median(edges)), *FIXED_HEIGHTS):
            lifted = clean + height * normals(clean)
            found = _placed(model, rows, *nearest_neighbors(training, lifted, k))
            beyond = float((found.residual > limit).mean())
            print(f"| {k} | {height:.2f} | {beyond:.1%} | {np.median(found.gap) / gap:.0f} |")


def _placed(model: LandmarkModel, rows: FloatArray, distances: FloatArray, neighbors: IntArray) -> Placed:
    return placed(model, rows_through_neighbors(distances, neighbors, rows), N_LANDMARKS)


if __name__ == "__main__":
    main()
