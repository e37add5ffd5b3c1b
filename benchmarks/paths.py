"""Shortest paths on one core: rows of path lengths against scipy's Dijkstra, on a roll and on images."""

import os
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from benchmarks.measure import Measurement, fastest_in_turns, use_one_core
from benchmarks.orchestration import in_own_process
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import neighbor_graph
from pipeline.numerics.geodesics.rows import shortest_path_rows
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.types import AnyArray

N_ROLL, N_IMAGES, N_NEIGHBORS = 200_000, 70_000, 10
# As few as are asked for, and as many as a fit of the images would take by itself.
FEW_SOURCES, MANY_SOURCES = 100, 600
# scipy takes as long for every source, so that a few of them tell what all would take.
N_TIMED = 10
REPEATS = 5


def paths_against_scipy() -> list[Measurement]:
    """Bringing nodes and sources into order is part of ours; compiling and finding the graph are part of neither."""
    found = [_compared("paths-roll", f"{N_ROLL:,} points of a Swiss roll", roll_graph, FEW_SOURCES, 1 / 5)]
    if os.environ.get("TRIGPOINT_DATA"):
        found.append(_compared("paths-mnist", f"{N_IMAGES:,} images of MNIST", image_graph, MANY_SOURCES, 1 / 3))
    else:
        print("shortest paths on MNIST: left out, for TRIGPOINT_DATA names no folder of data sets")
    return found


def _compared(key: str, what: str, graph: Callable[[], csr_array], n_sources: int, limit: float) -> Measurement:
    ours, theirs = in_own_process(timed_rows, graph, n_sources)
    name = f"shortest paths from {n_sources} sources, {what}, k={N_NEIGHBORS}, one core"
    return Measurement(key, name, ours, "scipy's dijkstra", theirs, limit)


def timed_rows(make_graph: Callable[[], csr_array], n_sources: int) -> tuple[float, float]:
    """Seconds of ours and of scipy for all sources, once both have answered the same to the bit."""
    graph = make_graph()
    use_one_core()
    sources = np.random.default_rng(0).choice(graph.shape[0], n_sources, replace=False)
    timed = sources[:: n_sources // N_TIMED]
    shortest_path_rows(_graph_of_roll(1000), np.arange(20))  # compiled before the clock starts
    answers: dict[str, AnyArray] = {}

    def ours() -> None:
        answers["ours"] = shortest_path_rows(graph, sources, n_jobs=1)[:: n_sources // N_TIMED]

    def theirs() -> None:
        answers["scipy"] = dijkstra(graph, directed=True, indices=timed)

    fastest = fastest_in_turns(REPEATS, ours, theirs)
    if answers["ours"].tobytes() != answers["scipy"].tobytes():
        raise RuntimeError("path lengths differ from scipy's; they must be the same to the bit.")
    return fastest[0], fastest[1] * n_sources / N_TIMED


def roll_graph() -> csr_array:
    return _graph_of_roll(N_ROLL)


def _graph_of_roll(n_points: int) -> csr_array:
    return neighbor_graph(*neighbors_within(swiss_roll(n_points, seed=0).points, N_NEIGHBORS, n_jobs=2))


def image_graph() -> csr_array:
    """Neighbors by faiss in single precision, which is fast; how exact they are does not matter here."""
    with np.load(Path(os.environ["TRIGPOINT_DATA"]) / "mnist70k.npz") as file:
        images = file["X"][:N_IMAGES].astype(np.float32)
    index = faiss.IndexFlatL2(images.shape[1])
    index.add(images)
    squares, found = index.search(images, N_NEIGHBORS + 1)
    others = found != np.arange(N_IMAGES)[:, None]
    others[others.all(axis=1), -1] = False  # an image that more than k equal ones hide from itself
    shape = (N_IMAGES, N_NEIGHBORS)
    return neighbor_graph(np.sqrt(squares[others].astype(np.float64)).reshape(shape), found[others].reshape(shape))
