"""How small a model may be: the table of docs/models.md.

Models of a Swiss roll and, if TRIGPOINT_DATA names a folder with it, of handwritten digits, with more and more anchors:
their size, and how far from where the run has them they place rows. Run with `python -m benchmarks.portable`.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.jobs.fit import fit
from pipeline.jobs.portable import export_model
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import fit_settings
from pipeline.store import run
from pipeline.types import AnyArray, Json

N_ROLL, N_DIGITS = 50_000, 20_000
SETTINGS = {"n_neighbors": 10, "n_landmarks": 300, "component_policy": "bridge"}
ANCHORS = (500, 1000, 2000, 5000, 10_000, 15_000)
MIB = 1 << 20


def main() -> None:
    print("| data | anchors | MiB | rms | 99% | seconds |")
    print("|---|---|---|---|---|---|")
    for name, rows, n_components in _datasets():
        with tempfile.TemporaryDirectory() as folder:
            _measure(name, rows, {**SETTINGS, "n_components": n_components}, Path(folder))


def _datasets() -> Iterator[tuple[str, AnyArray, int]]:
    yield f"roll, {N_ROLL:,} x 3", swiss_roll(N_ROLL, seed=0).points, 2
    if folder := os.environ.get("TRIGPOINT_DATA"):
        with np.load(Path(folder) / "mnist70k.npz") as digits:
            yield f"digits, {N_DIGITS:,} x 784", digits["X"].reshape(-1, 784)[:N_DIGITS], 10


def _measure(name: str, rows: AnyArray, settings: Json, folder: Path) -> None:
    np.save(folder / "rows.npy", rows)
    store = str(folder / "run")
    fit(fit_settings({**settings, "source": str(folder / "rows.npy"), "store": store}))
    for anchors in ANCHORS:
        began = time.perf_counter()
        stated = export_model(store, str(folder / f"model-{anchors}"), anchors).stated
        seconds, accuracy = time.perf_counter() - began, stated["accuracy"]
        figures = f"{stated['bytes'] / MIB:.1f} | {accuracy['rms']:.2%} | {accuracy['q99']:.2%} | {seconds:.1f}"
        print(f"| {name} | {anchors:,} | {figures} |", flush=True)
    print(f"| {name} | the run | {run.open_store(store).size('') / MIB:.1f} | 0 | 0 | |", flush=True)


if __name__ == "__main__":
    main()
