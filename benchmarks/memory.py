"""Peak memory of each stage of a fit beside what is predicted: `python -m benchmarks.memory [rows columns [last]]`.

The source is written chunk by chunk into a temporary folder. Before each stage the kernel's high-water mark of this
process is set back, so that every stage shows its own peak. `last` names the stage to stop after.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from pipeline.jobs.fit import chain, fit_costs
from pipeline.settings import FitSettings, fit_settings
from pipeline.sources import Source, open_source
from pipeline.stages.stage import Outcome, Stage, run_stage
from pipeline.store import lease
from pipeline.store.local import LocalBackend

# Stages that must stay below this at 4,000,000 x 128; shortest paths hold the whole graph and are planned for apart.
BOUNDED = ("validate", "cells", "assign", "order", "probes", "neighbors", "embed")
LIMIT = 1 << 30
WITHIN = 1.5


def main() -> int:
    n_rows, n_columns = (int(word) for word in (sys.argv[1:3] or ("4000000", "128")))
    last = sys.argv[3] if len(sys.argv) > 3 else "publish"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.npy"
        write_source(path, n_rows, n_columns)
        settings = fit_settings(
            {"source": str(path), "store": "unused", "n_landmarks": 100, "component_policy": "bridge"}
        )
        with lease.acquire(LocalBackend(Path(folder) / "run.zarr")) as held:
            return 0 if measured_fit(settings, open_source(path), lambda stage: run_stage(held, stage), last) else 1


def write_source(path: Path, n_rows: int, n_columns: int) -> None:
    """A low-dimensional sheet in many columns with a little noise, float32."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, n_columns))
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_columns)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, n_rows, 50_000):
            size = min(50_000, n_rows - first)
            block = rng.uniform(-1, 1, size=(size, 8)) @ mixing + 0.05 * rng.normal(size=(size, n_columns))
            file.write(block.astype(np.float32).tobytes())


class Enough(Exception):  # noqa: N818  no error
    """The last stage asked for is done."""


def measured_fit(settings: FitSettings, source: Source, run: Callable[[Stage], Outcome], last: str) -> bool:
    """Run every stage up to `last`, print its peak beside the predicted one; whether all is as promised."""
    predicted = {stage: cost.peak for stage, cost in fit_costs(settings, source).items()}
    verdicts = []

    def measured(stage: Stage) -> Outcome:
        start = time.perf_counter()
        reset_peak()
        outcome = run(stage)
        peak = read_peak()
        ratio = predicted[stage.name] / peak
        verdicts.append(1 / WITHIN <= ratio <= WITHIN and (stage.name not in BOUNDED or peak < LIMIT))
        print(
            f"{stage.name:<11} {time.perf_counter() - start:8.1f} s   peak {peak / 2**20:6.0f} MiB   predicted "
            f"{predicted[stage.name] / 2**20:6.0f} MiB ({ratio:.2f}x)   {'ok' if verdicts[-1] else 'NOT AS PROMISED'}",
            flush=True,
        )
        if stage.name == "probes":
            print(f"{'':<11} recall {outcome.figures['recall']:.4f} with {outcome.figures['n_probes']} cells probed")
        if stage.name == last:
            raise Enough
        return outcome

    with suppress(Enough):
        chain(settings, source, measured)
    return all(verdicts)


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def read_peak() -> int:
    """Bytes of memory that this process has had at most since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("this system does not report a process's peak memory")


if __name__ == "__main__":
    sys.exit(main())
