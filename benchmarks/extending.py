"""Extending against faiss searching the same queries in memory and plain reading and writing of the same bytes.

`python -m benchmarks.extending [fitted new columns landmarks]`; the promise is about 1,000,000 new rows of 50 columns,
in the space of 1,000,000 with 500 landmarks. Ours is the whole extension on two workers of one thread, start-up
excluded; the fit before it is not timed.
"""

import math
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np

from benchmarks.measure import Measurement, seconds
from benchmarks.memory import write_source
from benchmarks.neighbors import N_NEIGHBORS, N_THREADS, PROBES, below, peak_of, recall
from benchmarks.orchestration import TWO_WORKERS, in_own_process
from benchmarks.plan import Stopwatch
from pipeline.fanout.execution import executor
from pipeline.jobs.extend import extend, memory_of_extension, opened_space
from pipeline.jobs.fit import fit
from pipeline.results.run import open_run
from pipeline.settings import ExtendSettings, fit_settings, job_settings
from pipeline.types import IntArray

N_FITTED = N_NEW = 200_000
N_COLUMNS, N_LANDMARKS, N_SAMPLED, FEW_ROWS = 50, 100, 1000, 5000
LIMIT = 1.5


class Placed(NamedTuple):
    """Seconds of each stage and of all, workers' peak memory, bytes of results, and some rows with their neighbors."""

    stages: dict[str, float]
    seconds: float
    peak: int
    result_bytes: int
    rows: IntArray
    neighbors: IntArray


class Searched(NamedTuple):
    """Seconds of faiss, its probes, the recall of both, and seconds of plain reading and writing."""

    seconds: float
    n_probes: int
    recall: float
    our_recall: float
    files: float


def extension_against_faiss(
    n_fitted: int = N_FITTED, n_new: int = N_NEW, n_columns: int = N_COLUMNS, n_landmarks: int = N_LANDMARKS
) -> list[Measurement]:
    with tempfile.TemporaryDirectory() as folder:
        _write_sources(Path(folder), n_fitted, n_new, n_columns)
        in_own_process(fitted, folder, n_landmarks)
        ours: Placed = in_own_process(extended, folder)
        theirs: Searched = in_own_process(searched, folder, ours)
    print("stages: " + ", ".join(f"{name} {time:.2f}" for name, time in ours.stages.items()))
    if theirs.our_recall < 0.99:
        raise RuntimeError(f"the recall is {theirs.our_recall:.4f}, less than 0.99.")
    name = f"extending {n_fitted:,} x {n_columns}, m={n_landmarks}, to {n_new:,} new rows, on two workers"
    note = (
        f"recall {theirs.our_recall:.4f} against {theirs.recall:.4f} with {theirs.n_probes} probes; {theirs.files:.2g} "
        f"s of theirs for reading and writing; {ours.peak / 2**20:.0f} MiB a worker"
    )
    baseline = "faiss's search in memory, plain reading and writing"
    key = f"extend-{n_fitted}-{n_new}x{n_columns}"
    return [Measurement(key, name, ours.seconds, baseline, theirs.seconds + theirs.files, LIMIT, note)]


def _write_sources(folder: Path, n_fitted: int, n_new: int, n_columns: int) -> None:
    """All rows are of one kind; the first are fitted."""
    write_source(folder / "all.npy", n_fitted + n_new, n_columns)
    rows = np.load(folder / "all.npy", mmap_mode="r")
    for name, part in (("fitted", rows[:n_fitted]), ("new", rows[n_fitted:]), ("few", rows[:FEW_ROWS])):
        np.save(folder / f"{name}.npy", part)
    (folder / "all.npy").unlink()


def fitted(folder: str, n_landmarks: int) -> None:
    given = {"source": f"{folder}/fitted.npy", "store": f"{folder}/run.zarr", "n_landmarks": n_landmarks}
    with executor(TWO_WORKERS) as execute:
        fit(fit_settings({**given, "n_neighbors": N_NEIGHBORS}), execute=execute)


def extended(folder: str) -> Placed:
    """A few rows first, so that everything is compiled and loaded before the clock starts."""
    watch = Stopwatch()
    with executor(TWO_WORKERS) as execute:
        extend(_settings(folder, "few"), execute=execute)
        for number in below(os.getpid()):
            Path(f"/proc/{number}/clear_refs").write_text("5")
        taken = seconds(lambda: extend(_settings(folder, "new"), watch, execute=execute))
        peak = max(map(peak_of, below(os.getpid())))
    predicted = max(memory_of_extension(_settings(folder, "new"), opened_space(_settings(folder, "new"))).values())
    if peak > 1.5 * predicted:
        raise RuntimeError(f"a worker had {peak >> 20} MiB in memory, {predicted >> 20} were predicted.")
    out = open_run(f"{folder}/new.zarr")
    n_bytes = sum(math.prod(array.shape) * array.dtype.itemsize for array in map(out.array, out.arrays))
    return Placed(watch.seconds, taken, peak, n_bytes, *_sampled(folder))


def _settings(folder: str, name: str) -> ExtendSettings:
    given = {"store": f"{folder}/run.zarr", "source": f"{folder}/{name}.npy", "output": f"{folder}/{name}.zarr"}
    return job_settings(ExtendSettings, given)


def _sampled(folder: str) -> tuple[IntArray, IntArray]:
    """Some new rows, and the fitted rows that were found near them."""
    run, out = open_run(f"{folder}/run.zarr"), open_run(f"{folder}/new.zarr")
    nodes = np.concatenate(list(run.parts("order", "first")))
    first = np.concatenate(list(out.parts("order", "first")))
    offsets, neighbors = (list(out.parts("search", name)) for name in ("offsets", "neighbors"))
    # Each row's own neighbors come first.
    own = [found[begins[:-1, None] + np.arange(N_NEIGHBORS)] for begins, found in zip(offsets, neighbors, strict=True)]
    some = np.random.default_rng(1).choice(len(first), N_SAMPLED, replace=False)
    return first[some], nodes[np.concatenate(own)[some]]


def searched(folder: str, ours: Placed) -> Searched:
    """faiss on two threads, with the fewest probes that reach our recall; only the search of the new rows is timed."""
    faiss.omp_set_num_threads(N_THREADS)
    points = np.load(f"{folder}/fitted.npy")
    files = seconds(lambda: _copy(folder, ours.result_bytes))
    new = np.load(f"{folder}/new.npy")
    exact = faiss.IndexFlatL2(points.shape[1])
    exact.add(points)
    true = [set(list_) for list_ in exact.search(new[ours.rows], N_NEIGHBORS)[1].tolist()]
    our_recall = recall(ours.neighbors, true)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(points.shape[1]), points.shape[1], int(4 * math.sqrt(len(points))))
    index.train(points)
    index.add(points)
    for n_probes in PROBES:
        index.nprobe = n_probes
        theirs = recall(index.search(new[ours.rows], N_NEIGHBORS)[1], true)
        if theirs >= our_recall:
            break
    return Searched(seconds(lambda: index.search(new, N_NEIGHBORS)), index.nprobe, theirs, our_recall, files)


def _copy(folder: str, n_written: int) -> None:
    """Read the new rows, and write and sync as many bytes as there are results."""
    with open(f"{folder}/new.npy", "rb") as file:
        while file.read(1 << 24):
            pass
    with open(f"{folder}/written", "wb") as file:
        for first in range(0, n_written, 1 << 24):
            file.write(bytes(min(1 << 24, n_written - first)))
        file.flush()
        os.fsync(file.fileno())


def main() -> int:
    sizes = (int(float(word)) for word in (sys.argv[1:5] or (N_FITTED, N_NEW, N_COLUMNS, N_LANDMARKS)))
    measurements = extension_against_faiss(*sizes)
    for measurement in measurements:
        print(measurement)
    return 0 if all(map(Measurement.holds, measurements)) else 1


if __name__ == "__main__":
    sys.exit(main())
