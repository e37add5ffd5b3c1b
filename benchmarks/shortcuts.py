"""Short circuits that are found, and false alarms: `python -m benchmarks.shortcuts`.

Planted: rolls of 20,000 points with 10 bridges between their turns, 10 neighbors. Clean: point sets of 200 to 5,000
points, 5 to 15 neighbors. The graph of a small roll or curve may have edges from turn to turn, which are no false
alarms: the ends of one are, in flat coordinates, at most three times as far apart as in space.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_blobs, make_s_curve

from pipeline.numerics.datasets import bridged_roll, swiss_roll
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.shortcuts import MOST_LISTED, ShortCircuit, short_circuits
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.types import FloatArray

N_POINTS, N_BRIDGES, N_ROLLS = 20_000, 10, 20
SIZES, NEIGHBORS = (200, 500, 1000, 2000, 5000), (5, 7, 10, 15)
N_CENTERS, FOLDED = 6, 3.0


class Clean(NamedTuple):
    """Points (n, D), and coordinates (n, d) in which short edges of the data are short."""

    points: FloatArray
    flat: FloatArray


Maker = Callable[[int, np.random.Generator], Clean]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=13, help="point sets of each kind and size")
    planted()
    clean(range(parser.parse_args().seeds))


def planted() -> None:
    """Print how many of the bridges are among the edges that are listed, and how many edges these are, at worst."""
    counts = np.array([_planted(seed) for seed in range(N_ROLLS)])
    n_kept = int((counts[:, 0] >= N_BRIDGES - 1).sum())
    print(f"Bridges among those listed: {counts[:, 0].min()} to {counts[:, 0].max()} of {N_BRIDGES}; at least ", end="")
    print(f"{N_BRIDGES - 1} on {n_kept} of {N_ROLLS} rolls; listed: at most {counts[:, 1].max()}\n", flush=True)


def _planted(seed: int) -> tuple[int, int]:
    found = found_in(bridged_roll(N_POINTS, N_BRIDGES, seed), 10)[:MOST_LISTED]
    return len({int(item.starts[0]) for item in found if item.starts[0] >= N_POINTS}), len(found)


def found_in(points: FloatArray, n_neighbors: int) -> list[ShortCircuit]:
    graph = neighbor_graph(*neighbors_within(points, n_neighbors, 1))
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data.astype(np.float32))
    return short_circuits(paths, np.arange(len(points)), 0)


def clean(seeds: range) -> None:
    """Print for each kind of clean data in how many graphs something is listed that is none."""
    print(f"| false alarms in graphs | {' | '.join(f'k = {k}' for k in NEIGHBORS)} | of each |")
    print("|---" * (2 + len(NEIGHBORS)) + "|")
    totals = np.zeros(len(NEIGHBORS), np.int64)
    for kind, made in KINDS.items():
        alarms = np.array([_alarms(made, n_points, seed) for n_points in SIZES for seed in seeds]).sum(axis=0)
        totals += alarms
        print(f"| {kind} | {' | '.join(map(str, alarms))} | {len(SIZES) * len(seeds)} |", flush=True)
    print(f"| all | {' | '.join(map(str, totals))} | {len(KINDS) * len(SIZES) * len(seeds)} |")


def _alarms(made: Maker, n_points: int, seed: int) -> list[bool]:
    """Whether there is a false alarm, for each number of neighbors."""
    data = made(n_points, np.random.default_rng([seed, n_points]))
    return [not all(_is_real(item, data) for item in found_in(data.points, k)) for k in NEIGHBORS]


def _is_real(item: ShortCircuit, data: Clean) -> bool:
    apart, flat = (np.linalg.norm(x[item.starts[0]] - x[item.ends[0]]) for x in data)
    return bool(flat > FOLDED * apart)


def _cube(n_columns: int) -> Maker:
    return lambda n, rng: _as_it_is(rng.uniform(size=(n, n_columns)))


def _cloud(n_columns: int) -> Maker:
    return lambda n, rng: _as_it_is(rng.normal(size=(n, n_columns)))


def _blobs(n_columns: int, deviation: float) -> Maker:
    def made(n_points: int, rng: np.random.Generator) -> Clean:
        seed = int(rng.integers(1 << 31))
        return _as_it_is(
            make_blobs(n_points, n_columns, centers=N_CENTERS, cluster_std=deviation, random_state=seed)[0]
        )

    return made


def _as_it_is(points: FloatArray) -> Clean:
    return Clean(points, points)


def _roll(n_points: int, rng: np.random.Generator) -> Clean:
    return Clean(*swiss_roll(n_points, int(rng.integers(1 << 31))))


def _curve(n_points: int, rng: np.random.Generator) -> Clean:
    points, along = make_s_curve(n_points, random_state=int(rng.integers(1 << 31)))
    return Clean(points, np.column_stack([along, points[:, 1]]))


def _sphere(n_points: int, rng: np.random.Generator) -> Clean:
    points = rng.normal(size=(n_points, 3))
    return _as_it_is(points / np.linalg.norm(points, axis=1)[:, None])


KINDS: dict[str, Maker] = {
    **{f"uniform in {n} dimensions": _cube(n) for n in (2, 3, 5, 10)},
    **{f"Gaussian in {n} dimensions": _cloud(n) for n in (2, 3, 5, 10)},
    **{f"{N_CENTERS} blobs in {n} dimensions": _blobs(n, 1.0) for n in (2, 5, 10)},
    **{f"{N_CENTERS} wide blobs in {n} dimensions": _blobs(n, 3.0) for n in (2, 5)},
    "Swiss roll": _roll,
    "S-curve": _curve,
    "sphere": _sphere,
}


if __name__ == "__main__":
    main()
