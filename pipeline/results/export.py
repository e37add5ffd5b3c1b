"""Published results as a file of another kind, a block of rows at a time: .npy, Parquet or CSV."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.results.run import Run
from pipeline.types import AnyArray

if TYPE_CHECKING:
    import pyarrow as pa


ROWS_PER_BLOCK = 65_536
KINDS = (".npy", ".parquet", ".csv")


def export(run: Run, arrays: list[str], output: Path) -> int:
    """Write published arrays, rows in the source's order; the file appears whole or not at all. The number of rows.

    Tables carry the id column, if the fit was told one, as their first.
    """
    if output.suffix not in KINDS:
        raise InvalidInputError(f"output={str(output)!r} is of no known kind; end its name in {', '.join(KINDS)}.")
    if output.suffix == ".npy" and len(arrays) != 1:
        raise InvalidInputError(f"array={','.join(arrays)}: a .npy file holds one; choose one, or use Parquet or CSV.")
    if not output.absolute().parent.is_dir():
        raise InvalidInputError(f"output={str(output)!r} is in a folder that does not exist; create it first.")
    taken = {column for name in arrays for column in _named_columns(name, run.embedding(name, 0, 1))}
    id_column = run.manifest["settings"]["id_column"]
    if output.suffix != ".npy" and id_column in taken:
        raise InvalidInputError(
            f"id_column={id_column!r} is also the name of a result; rename it in the source and fit again."
        )
    with _whole_file(output) as file:
        if output.suffix == ".npy":
            _write_npy(run, arrays[0], file)
        else:
            _write_table(run, arrays, file, output.suffix)
    return run.n_rows


@contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when it is complete."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _blocks(run: Run) -> Iterator[tuple[int, int]]:
    return ((start, min(start + ROWS_PER_BLOCK, run.n_rows)) for start in range(0, run.n_rows, ROWS_PER_BLOCK))


def _write_npy(run: Run, name: str, file: IO[bytes]) -> None:
    array = run.array(name)
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for start, stop in _blocks(run):
        file.write(np.ascontiguousarray(array.read(start, stop)).data)


def _write_table(run: Run, arrays: list[str], file: IO[bytes], suffix: str) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    writer: Any = None
    for start, stop in _blocks(run):
        table = _table(run, arrays, start, stop)
        if writer is None:
            kind = pyarrow.parquet.ParquetWriter if suffix == ".parquet" else pyarrow.csv.CSVWriter
            writer = kind(file, table.schema)
        writer.write_table(table)
    writer.close()


def _table(run: Run, arrays: list[str], start: int, stop: int) -> "pa.Table":
    import pyarrow as pa

    ids = run.ids(start, stop)
    columns = {} if ids is None else {str(run.manifest["settings"]["id_column"]): ids}
    for name in arrays:
        columns |= _named_columns(name, run.embedding(name, start, stop))
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def _named_columns(name: str, rows: AnyArray) -> dict[str, AnyArray]:
    if rows.ndim == 1:
        return {name: rows}
    return {f"{name}_{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
