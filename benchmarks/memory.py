"""Peak memory of the stages on a source far larger than it: `python -m benchmarks.memory [rows] [columns]`.

The source is written chunk by chunk into a temporary folder; each stage reports the process's peak so far.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline.partitions import RowPartitions
from pipeline.sources import open_source
from pipeline.stages.neighbors import Neighbors, Probes
from pipeline.stages.partition import Assign, Cells, Order
from pipeline.stages.preprocess import PreparedSource
from pipeline.stages.stage import Outcome, Stage, run_stage
from pipeline.stages.validate import Validate
from pipeline.store import lease
from pipeline.store.durable import DurableLocalStore
from pipeline.store.lease import Lease

PARTITION_BYTES = 32 << 20


def main() -> None:
    n_rows, n_columns = (int(word) for word in (sys.argv[1:] or ("4000000", "128")))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.npy"
        write_source(path, n_rows, n_columns)
        source = open_source(path)
        cut = RowPartitions.of_bytes(n_rows, n_columns * source.dtype.itemsize, PARTITION_BYTES)
        with lease.acquire(DurableLocalStore(Path(folder) / "run.zarr")) as held:
            scaled = PreparedSource(source, measured(held, Validate(source, cut)))
            cells = measured(held, Cells(scaled, cut, seed=0))
            assigned = measured(held, Assign(scaled, cut, cells))
            ordered = measured(held, Order(assigned, cut.count, cut.rows_each))
            probes = measured(held, Probes(cells, ordered, 10, seed=0))
            found = measured(held, Neighbors(cells, ordered, probes, 10))
            print(f"neighbors: recall {found.figures['recall']:.4f} with {found.figures['n_probes']} cells probed")


def write_source(path: Path, n_rows: int, n_columns: int) -> None:
    """Clusters on a low-dimensional sheet in many columns, float32."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, n_columns))
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_columns)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, n_rows, 50_000):
            size = min(50_000, n_rows - first)
            block = rng.uniform(-1, 1, size=(size, 8)) @ mixing + 0.05 * rng.normal(size=(size, n_columns))
            file.write(block.astype(np.float32).tobytes())


def measured(held: Lease, stage: Stage) -> Outcome:
    start = time.perf_counter()
    outcome = run_stage(held, stage)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{stage.name:<10} {time.perf_counter() - start:7.1f} s   peak so far {peak:7.0f} MiB")
    return outcome


if __name__ == "__main__":
    main()
