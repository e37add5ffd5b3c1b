"""Where new rows are placed against where a graph that they are part of puts them: `python -m benchmarks.new_edges`.

With edges in both directions, and with their own only, as scikit-learn has it. Handwritten digits of MNIST are measured
too if TRIGPOINT_DATA names a folder with them.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from pipeline import LandmarkIsomap
from pipeline.errors import ComponentWarning, ShortcutWarning
from pipeline.methods import NEW_EDGES
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.components import apply_component_policy
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import shortest_path_rows
from pipeline.numerics.mds import LandmarkModel, moments_of, project_moments
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.types import AnyArray, FloatArray

N_NEIGHBORS, N_NEW = 10, 100


class Case(NamedTuple):
    """Rows, of which the last ones in random order are new, landmarks and components."""

    name: str
    rows: AnyArray
    n_landmarks: int
    n_components: int


def cases() -> Iterator[Case]:
    yield Case("roll, 4,000", swiss_roll(4000, seed=0).points, 200, 2)
    yield Case("digits, 1,797", load_digits().data, 300, 5)
    if folder := os.environ.get("TRIGPOINT_DATA"):
        yield mnist(Path(folder))


def mnist(folder: Path) -> Case:
    with np.load(folder / "mnist70k.npz") as file:
        images = file["X"].reshape(-1, 784)
    chosen = np.random.default_rng(0).choice(len(images), 3000, replace=False)
    return Case("MNIST, 3,000", images[chosen].astype(np.float64), 300, 5)


def placement_error(case: Case, new_edges: str) -> float:
    """Root mean square distance of new rows from where the landmarks put them by paths in a graph of all fitted rows
    and this one, in spreads of the embedding."""
    rows = case.rows[np.random.default_rng(0).permutation(len(case.rows))]
    known, new = rows[:-N_NEW], rows[-N_NEW:]
    with warnings.catch_warnings():
        # Warnings about the data are no subject here.
        warnings.simplefilter("ignore", ComponentWarning)
        warnings.simplefilter("ignore", ShortcutWarning)
        isomap = LandmarkIsomap(
            N_NEIGHBORS, case.n_components, n_landmarks=case.n_landmarks, random_state=0, new_edges=new_edges
        ).fit(known)
    lengths = np.stack([_lengths_with(known, row, isomap.landmark_indices_) for row in new])
    model, exponent = isomap.model_, isomap._space.embedder.exponent
    if not isinstance(model, LandmarkModel):
        raise TypeError(f"{type(model).__name__} is no classical model")
    expected = np.ldexp(project_moments(model, moments_of(model, np.ldexp(lengths, -exponent))), exponent)
    spread = np.sqrt(isomap.embedding_.var(axis=0).sum())
    return float(np.sqrt(np.square(isomap.transform(new) - expected).sum(axis=1).mean()) / spread)


def _lengths_with(known: AnyArray, row: AnyArray, landmarks: AnyArray) -> FloatArray:
    together = np.vstack([known, row])
    graph = neighbor_graph(*neighbors_within(together, N_NEIGHBORS))
    joined = apply_component_policy(together, graph, "bridge").graph
    return np.asarray(shortest_path_rows(joined, [len(known)])[0, landmarks])


def main() -> None:
    print(f"| rows | {' | '.join(NEW_EDGES)} |\n|---|---|---|")
    for case in cases():
        print(f"| {case.name} | {' | '.join(f'{placement_error(case, rule):.4f}' for rule in NEW_EDGES)} |", flush=True)


if __name__ == "__main__":
    main()
