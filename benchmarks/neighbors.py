"""The search for neighbors in many columns against faiss's IVF index in memory, at the same recall.

`python -m benchmarks.neighbors [rows columns]`; the promise is about 1,000,000 x 50. Ours is what the stages `probes`
and `neighbors` take on two workers of one thread, from disk to disk; faiss's is training, adding and searching on two
threads, with the fewest probes that reach our recall.
"""

import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np

from benchmarks.measure import Measurement, seconds
from benchmarks.memory import Enough, write_source
from benchmarks.orchestration import TWO_WORKERS, in_own_process
from benchmarks.plan import Stopwatch
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import chain
from pipeline.settings import fit_settings
from pipeline.sources import open_source
from pipeline.stages.stage import Execute, Outcome, Stage, run_stage
from pipeline.store import lease
from pipeline.store.local import LocalBackend
from pipeline.types import AnyArray, IntArray

N_NEIGHBORS, N_THREADS, N_QUERIES = 10, 2, 1000
# Enough rows to have everything compiled and loaded before the clock starts.
FEW_ROWS = 5000
PROBES = (4, 8, 16, 32, 64)
LEAST_RECALL, MOST_MEMORY = 0.99, 3 << 29
SEARCH, BEFORE = ("probes", "neighbors"), ("cells", "assign", "order")


class Searched(NamedTuple):
    """Seconds of each stage, workers' peak memory in bytes, and what was found: some rows and their neighbors' rows."""

    seconds: dict[str, float]
    peak: int
    rows: IntArray
    neighbors: IntArray


class Indexed(NamedTuple):
    """Seconds of each step of faiss, its probes, and the recall of both."""

    seconds: dict[str, float]
    n_probes: int
    recall: float
    our_recall: float


def neighbors_against_faiss(n_rows: int = 200_000, n_columns: int = 50) -> list[Measurement]:
    """One after the other in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        write_source(Path(folder) / "source.npy", n_rows, n_columns)
        write_source(Path(folder) / "few.npy", FEW_ROWS, n_columns)
        ours: Searched = in_own_process(searched, folder)
        theirs: Indexed = in_own_process(indexed, folder, ours.rows, ours.neighbors)
    _check(ours, theirs)
    search, before = (sum(ours.seconds[name] for name in names) for names in (SEARCH, BEFORE))
    index = sum(theirs.seconds.values())
    name = f"neighbor search among {n_rows:,} x {n_columns}, k={N_NEIGHBORS}, on two workers"
    note = (
        f"recall {theirs.our_recall:.4f} against {theirs.recall:.4f} with {theirs.n_probes} probes; "
        f"{search / theirs.seconds['search']:.2g}x faiss's search alone; with the stages before it "
        f"{(search + before) / index:.2g}x; {ours.peak / 2**20:.0f} MiB a worker"
    )
    key = f"neighbors-faiss-{n_rows}x{n_columns}"
    return [Measurement(key, name, search, "faiss IVF in memory", index, 1.3, note)]


def _check(ours: Searched, theirs: Indexed) -> None:
    for whose, found in (("stages", ours.seconds), ("faiss", theirs.seconds)):
        print(f"{whose}: " + ", ".join(f"{name} {time:.2f}" for name, time in found.items()))
    if theirs.our_recall < LEAST_RECALL:
        raise RuntimeError(f"the recall is {theirs.our_recall:.4f}, less than {LEAST_RECALL}.")
    if ours.peak > MOST_MEMORY:
        raise RuntimeError(f"a worker had {ours.peak / 2**20:.0f} MiB in memory, more than {MOST_MEMORY / 2**20:.0f}.")


def searched(folder: str) -> Searched:
    """The stages of a fit up to the search, on two workers of one thread."""
    watch = Stopwatch()
    with executor(TWO_WORKERS) as execute:
        with _stages(folder, "few", execute, Stopwatch()):
            pass
        with _stages(folder, "source", execute, watch) as outcomes:
            peak = max(map(peak_of, below(os.getpid())))
            rows, neighbors = _sampled(outcomes["order"], outcomes["neighbors"])
    return Searched({name: watch.seconds[name] for name in (*BEFORE, *SEARCH)}, peak, rows, neighbors)


@contextmanager
def _stages(folder: str, name: str, execute: Execute, watch: Stopwatch) -> Iterator[dict[str, Outcome]]:
    """The outcomes of the stages up to the search; workers' peak memory is that of the search."""
    path, outcomes = Path(folder) / f"{name}.npy", {}
    settings = fit_settings({"source": str(path), "store": "unused", "n_neighbors": N_NEIGHBORS})
    with lease.acquire(LocalBackend(Path(folder) / f"{name}.zarr")) as held:

        def run_one(stage: Stage) -> Outcome:
            if stage.name == SEARCH[0]:
                for number in below(os.getpid()):
                    Path(f"/proc/{number}/clear_refs").write_text("5")
            outcomes[stage.name] = run_stage(held, stage, execute, watch)
            if stage.name == SEARCH[-1]:
                raise Enough
            return outcomes[stage.name]

        with suppress(Enough):
            chain(settings, open_source(path), run_one)
        yield outcomes


def below(number: int) -> list[int]:
    """All processes below one; Dask's own are small beside the workers."""
    lists = [path.read_text() for path in Path(f"/proc/{number}/task").glob("*/children")]
    children = [int(word) for words in lists for word in words.split()]
    return children + [number for child in children for number in below(child)]


def peak_of(number: int) -> int:
    """Bytes of memory that a process has had at most since it was last set back."""
    lines = Path(f"/proc/{number}/status").read_text().splitlines()
    return max((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), default=0)


def _sampled(ordered: Outcome, found: Outcome) -> tuple[IntArray, IntArray]:
    """Source rows of some nodes and of their neighbors."""
    n_groups = len(ordered.figures["nodes_each"])
    first = np.concatenate([ordered.ledger.part("first", group).read() for group in range(n_groups)])
    neighbors = np.concatenate([found.ledger.part("neighbors", group).read() for group in range(n_groups)])
    nodes = np.random.default_rng(1).choice(len(first), N_QUERIES, replace=False)
    return first[nodes], first[neighbors[nodes]]


def indexed(folder: str, rows: IntArray, neighbors: IntArray) -> Indexed:
    """faiss on two threads; how many cells to probe is found on some rows, and that takes no time of its own."""
    faiss.omp_set_num_threads(N_THREADS)
    points = np.load(Path(folder) / "source.npy")
    exact = faiss.IndexFlatL2(points.shape[1])
    exact.add(points)
    true = _without_itself(exact, points, rows)
    ours = recall(neighbors, true)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(points.shape[1]), points.shape[1], int(4 * math.sqrt(len(points))))
    times = {"train": seconds(lambda: index.train(points)), "add": seconds(lambda: index.add(points))}
    for n_probes in PROBES:
        index.nprobe = n_probes
        theirs = recall(_without_itself(index, points, rows), true)
        if theirs >= ours:
            break
    times["search"] = seconds(lambda: index.search(points, N_NEIGHBORS + 1))
    return Indexed(times, index.nprobe, theirs, ours)


def _without_itself(index: faiss.Index, points: AnyArray, rows: IntArray) -> list[set[int]]:
    """The neighbors of some rows, as an index finds them."""
    found = index.search(points[rows], N_NEIGHBORS + 1)[1].tolist()
    return [set(list_) - {row} for list_, row in zip(found, rows.tolist(), strict=True)]


def recall(found: IntArray | list[set[int]], true: list[set[int]]) -> float:
    """The share of true neighbors that was found."""
    shared = [len(set(map(int, some)) & all_) / len(all_) for some, all_ in zip(found, true, strict=True)]
    return float(np.mean(shared))


def main() -> int:
    n_rows, n_columns = (int(float(word)) for word in (sys.argv[1:3] or ("200000", "50")))
    measurements = neighbors_against_faiss(n_rows, n_columns)
    for measurement in measurements:
        print(measurement)
    return 0 if all(map(Measurement.holds, measurements)) else 1


if __name__ == "__main__":
    sys.exit(main())
