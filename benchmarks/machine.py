"""What this machine can do at most, measured in the same run: products of matrices, memory, disk.

`python -m benchmarks.machine` measures these alone.
"""

import os
import platform
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import seconds
from pipeline.types import AnyArray

THREADS = (1, 2)
MATRIX_SIDE = 2048
# Far more than any cache holds.
COPIED_BYTES = FILE_BYTES = 1 << 28
PIECE_BYTES = 1 << 24
# More than a process gives back and gets again.
NEW_BYTES = 1 << 30
REPEATS, DISK_REPEATS = 8, 3


def machine_limits() -> dict[str, float]:
    """Figures by name, the unit in the name."""
    figures = {}
    for n_threads in THREADS:
        threads = f"{n_threads} thread" + "s" * (n_threads > 1)
        figures[f"sgemm, {threads}, Gflop/s"] = product_rate(np.float32, n_threads)
        figures[f"dgemm, {threads}, Gflop/s"] = product_rate(np.float64, n_threads)
        figures[f"memory copied, {threads}, GB/s read and written"] = copy_rate(n_threads)
    figures["new memory, written for the first time, GB/s"] = new_memory_rate()
    written, read = disk_rates()
    return {**figures, "disk written and synced, GB/s": written, "disk read, GB/s": read}


def machine_name() -> dict[str, str | int]:
    return {"cpu": _cpu_model(), "cores": os.cpu_count() or 1}


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def product_rate(dtype: type, n_threads: int) -> float:
    """Billions of additions and multiplications a second in the product of two square matrices."""
    rng = np.random.default_rng(0)
    matrix: AnyArray = rng.normal(size=(MATRIX_SIDE, MATRIX_SIDE)).astype(dtype)
    other, out = matrix[::-1].copy(), np.empty_like(matrix)
    with threadpool_limits(n_threads, user_api="blas"):
        fastest = min(seconds(lambda: np.matmul(matrix, other, out=out)) for _ in range(REPEATS))
    return 2e-9 * MATRIX_SIDE**3 / fastest


def copy_rate(n_threads: int) -> float:
    """Each thread copies its part; a byte counts twice, once read and once written."""
    source, target = np.ones(COPIED_BYTES // 8), np.zeros(COPIED_BYTES // 8)
    parts = list(zip(np.array_split(source, n_threads), np.array_split(target, n_threads), strict=True))

    def copy(part: tuple[AnyArray, AnyArray]) -> None:
        np.copyto(part[1], part[0])

    with ThreadPoolExecutor(n_threads) as pool:
        fastest = min(seconds(lambda: list(pool.map(copy, parts))) for _ in range(REPEATS))
    return 2e-9 * COPIED_BYTES / fastest


def new_memory_rate() -> float:
    """The system has to find and clear it; on a virtual machine the host may have to as well. Files written pay the
    same. Once only: the next time it would be at hand."""
    return 1e-9 * NEW_BYTES / seconds(lambda: np.empty(NEW_BYTES, dtype=np.uint8).fill(1))


def disk_rates() -> tuple[float, float]:
    """GB a second into a new file of the temporary folder until it is on the disk, and back from there.

    The bytes are random: a disk that packs what it is given shall not look faster than it is.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, piece = Path(folder) / "bytes", np.random.default_rng(0).bytes(PIECE_BYTES)
        written, read = [], []
        for _ in range(DISK_REPEATS):
            written.append(seconds(lambda: _write(path, piece)))
            _forget(path)
            read.append(seconds(lambda: _read(path)))
            path.unlink()
    return 1e-9 * FILE_BYTES / min(written), 1e-9 * FILE_BYTES / min(read)


def _write(path: Path, piece: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // PIECE_BYTES):
            file.write(piece)
        os.fsync(file.fileno())


def _forget(path: Path) -> None:
    """Ask the system to drop what it remembers of a file, so that reading it reads the disk."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> None:
    buffer = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def main() -> None:
    for name, figure in machine_limits().items():
        print(f"{name}: {figure:.3g}")


if __name__ == "__main__":
    main()
