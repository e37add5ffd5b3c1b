"""Joining a graph in many pieces beside the neighbor search before it: `python -m benchmarks.bridging`.

Clusters like those of texts: in 768 columns, each near a subspace of its own, far from the others. The sum of the
links is compared with that of the shortest, which are had from all pairs of points, by plain matrix products.
"""

import sys
import tempfile
import warnings
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import scipy

from benchmarks.measure import Measurement
from benchmarks.orchestration import TWO_WORKERS, in_own_process
from benchmarks.plan import Stopwatch
from pipeline.errors import ComponentWarning
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.settings import fit_settings
from pipeline.types import AnyArray, IntArray, Json

N_POINTS, N_COLUMNS, N_CLUSTERS = 200_000, 768, 1500
N_LATENT = 12
JOINING = ("pieces", "links", "far_links", "connecting")
LIMIT, LONGEST = 1.0, 1.05


def clusters(n_points: int, n_columns: int, n_clusters: int, seed: int = 0) -> AnyArray:
    """Points in clusters of uneven sizes."""
    rng = np.random.default_rng(seed)
    shares = rng.gamma(2.0, size=n_clusters)
    cluster_of = rng.choice(n_clusters, n_points, p=shares / shares.sum())
    centers = rng.normal(size=(n_clusters, n_columns)).astype(np.float32)
    points = centers[cluster_of] + 0.02 * rng.normal(size=(n_points, n_columns)).astype(np.float32)
    axes = rng.normal(size=(n_clusters, N_LATENT, n_columns)).astype(np.float32) / np.sqrt(n_columns)
    for cluster in range(n_clusters):
        mine = np.flatnonzero(cluster_of == cluster)
        points[mine] += 3 * rng.normal(size=(len(mine), N_LATENT)).astype(np.float32) @ axes[cluster]
    return points


def joined(folder: str) -> tuple[dict[str, float], Json, float, IntArray]:
    """Seconds of each stage of a fit, what became of the components, the sum of the links, and each row's component."""
    watch = Stopwatch()
    given = {"source": f"{folder}/points.npy", "store": f"{folder}/run.zarr", "n_landmarks": 50}
    with executor(TWO_WORKERS) as execute, warnings.catch_warnings():
        warnings.simplefilter("ignore", ComponentWarning)
        found = fit(fit_settings(given), watch, execute=execute).outcomes
    ordered, first = found["order"], 0
    of_nodes, labels = found["graph"].ledger.read("components").read(), []
    for group, n_nodes in enumerate(ordered.figures["nodes_each"]):
        rows, node_of = (ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
        labels.append(np.stack([rows, of_nodes[node_of + first]]))
        first += n_nodes
    rows, components = np.concatenate(labels, axis=1)
    lengths = np.ldexp(found["components"].ledger.read("lengths").read(), found["embed"].figures["exponent"])
    figures = {**found["components"].figures, **found["connecting"].figures}
    return watch.seconds, figures, float(lengths.sum()), components[np.argsort(rows)]


def shortest_sum(points: AnyArray, labels: IntArray) -> float:
    """The sum of the shortest links that join all clusters, from all pairs of points."""
    order = np.argsort(labels, kind="stable")
    points, labels = points[order] - points.mean(axis=0), labels[order]
    begins = np.flatnonzero(np.diff(labels, prepend=-1))
    squares = np.einsum("ij,ij->i", points, points)
    nearest = np.empty((len(begins), len(begins)))
    for cluster, mine in enumerate(np.split(np.arange(len(points)), begins[1:])):
        apart = points[mine] @ points.T
        apart *= -2.0
        apart += squares
        apart += squares[mine, None]
        nearest[cluster] = np.minimum.reduceat(apart.min(axis=0), begins)
    np.fill_diagonal(nearest, 0.0)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(np.sqrt(np.maximum(nearest, 0.0)))
    return float(tree.sum())


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.bridging", description="Joining a graph in many pieces.")
    parser.add_argument("--points", type=int, default=N_POINTS)
    parser.add_argument("--columns", type=int, default=N_COLUMNS)
    parser.add_argument("--clusters", type=int, default=N_CLUSTERS)
    asked = parser.parse_args()
    points = clusters(asked.points, asked.columns, asked.clusters)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "points.npy", points)
        stages, figures, total, labels = in_own_process(joined, folder)
    print("stages: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages.items()))
    print(f"components: {figures}", flush=True)
    shortest = shortest_sum(points, labels)
    print(f"sum of links {total:.6g}, of the shortest {shortest:.6g}: {total / shortest:.6f}x, limit {LONGEST}")
    joining = sum(seconds for name, seconds in stages.items() if name in JOINING)
    name = f"joining {figures['n_components']:,} components of {asked.points:,} x {asked.columns}, on two workers"
    measured = Measurement("bridging", name, joining, "the neighbor search", stages["neighbors"], LIMIT)
    print(measured)
    return 0 if measured.holds() and total <= LONGEST * shortest else 1


if __name__ == "__main__":
    sys.exit(main())
