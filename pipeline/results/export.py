"""Published results as a file of another kind, a block of rows at a time: .npy, Parquet or CSV."""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.results.run import Run
from pipeline.types import AnyArray

if TYPE_CHECKING:
    import pyarrow as pa

Kind = TypeVar("Kind")
ROWS_PER_BLOCK = 65_536
KINDS = (".npy", ".parquet", ".csv")
# The column that names the batch of a row; a run that is no batch goes without a name.
BATCH, NO_BATCH = "batch", ""


def export(run: Run, arrays: list[str], output: Path) -> int:
    """Write published arrays, rows in the source's order; the file appears whole or not at all. The number of rows.

    Tables carry the id column, if the fit was told one, as their first.
    """
    return export_batches({NO_BATCH: run}, arrays, output)


def export_batches(runs: Mapping[str, Run], arrays: list[str], output: Path) -> int:
    """Write published arrays of several runs, by the names of their batches, one after the other; as `export` does.

    Tables carry the name of each row's batch as their first column.
    """
    if output.suffix not in KINDS:
        raise InvalidInputError(f"output={str(output)!r} is of no known kind; end its name in {', '.join(KINDS)}.")
    if output.suffix == ".npy" and len(arrays) != 1:
        raise InvalidInputError(f"array={','.join(arrays)}: a .npy file holds one; choose one, or use Parquet or CSV.")
    if not output.absolute().parent.is_dir():
        raise InvalidInputError(f"output={str(output)!r} is in a folder that does not exist; create it first.")
    # A batch without rows has neither ids nor anything else to write; of such alone, one stands for all.
    filled = {name: run for name, run in runs.items() if run.n_rows} or dict([*runs.items()][:1])
    for name, run in filled.items():
        _require_arrays(name, run, arrays)
    if output.suffix == ".npy":
        with _whole_file(output) as file:
            _write_npy(filled, arrays[0], file)
    else:
        schema = _common_schema(filled, arrays)
        with _whole_file(output) as file:
            _write_table(filled, arrays, file, output.suffix, schema)
    return sum(run.n_rows for run in runs.values())


def _require_arrays(name: str, run: Run, arrays: list[str]) -> None:
    """Refuse arrays that are not published; of several batches, say which one does not have them."""
    try:
        for array in arrays:
            run.array(array)
    except InvalidInputError as error:
        if name == NO_BATCH:
            raise
        raise InvalidInputError(f"batch {name}: {error}") from error


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


def _write_npy(runs: Mapping[str, Run], name: str, file: IO[bytes]) -> None:
    arrays = {batch: run.array(name) for batch, run in runs.items()}
    kinds = {batch: (array.dtype.str, array.shape[1:]) for batch, array in arrays.items()}
    descr, width = _common(kinds)
    n_rows = sum(array.shape[0] for array in arrays.values())
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (n_rows, *width)})
    for batch, run in runs.items():
        for start, stop in _blocks(run):
            file.write(np.ascontiguousarray(arrays[batch].read(start, stop)).data)


def _write_table(runs: Mapping[str, Run], arrays: list[str], file: IO[bytes], suffix: str, schema: "pa.Schema") -> None:
    import pyarrow.csv
    import pyarrow.parquet

    kind = pyarrow.parquet.ParquetWriter if suffix == ".parquet" else pyarrow.csv.CSVWriter
    with kind(file, schema) as writer:
        for batch, run in runs.items():
            for start, stop in _blocks(run):
                writer.write_table(_table(batch, run, arrays, start, stop))


def _common_schema(runs: Mapping[str, Run], arrays: list[str]) -> "pa.Schema":
    """The columns of a table of all of them."""
    return _common({batch: _table(batch, run, arrays, 0, 1).schema for batch, run in runs.items()})


def _common(kinds: Mapping[str, Kind]) -> Kind:
    """What all batches are of; refused if one is of another kind than the first."""
    first, *others = kinds
    for other in others:
        if kinds[other] != kinds[first]:
            raise InvalidInputError(
                f"batch {other} has other columns or ids than batch {first}, so that one file cannot hold both; export "
                "the results of each by themselves."
            )
    return kinds[first]


def _table(batch: str, run: Run, arrays: list[str], start: int, stop: int) -> "pa.Table":
    import pyarrow as pa

    stop = min(stop, run.n_rows)
    named = {} if batch == NO_BATCH else {BATCH: np.full(stop - start, batch)}
    ids, id_column = run.ids(start, stop), run.manifest["settings"]["id_column"]
    results: dict[str, AnyArray] = {}
    for name in arrays:
        results |= _named_columns(name, run.embedding(name, start, stop))
    if id_column is not None and id_column in {**named, **results}:
        raise InvalidInputError(
            f"id_column={id_column!r} is also the name of a result; rename it in the source and fit again."
        )
    columns = {**named, **({} if ids is None else {str(id_column): ids}), **results}
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def _named_columns(name: str, rows: AnyArray) -> dict[str, AnyArray]:
    if rows.ndim == 1:
        return {name: rows}
    return {f"{name}_{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
