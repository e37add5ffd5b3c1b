"""Results of rows by name, as a run publishes them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipeline.types import AnyArray


class Table:
    """Arrays of p rows each, by name: `table.residual` or `table["residual"]`. They cannot be written to. As of a data
    frame, the length is that of the rows, and iterating gives the names."""

    def __init__(self, arrays: Mapping[str, AnyArray]) -> None:
        self._arrays = dict(arrays)
        for array in self._arrays.values():
            array.flags.writeable = False

    def __getitem__(self, name: str) -> AnyArray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values()), ()))

    def keys(self) -> list[str]:
        """The names: `dict(table)` has the arrays by name."""
        return list(self._arrays)

    def __getattr__(self, name: str) -> AnyArray:
        # What is not there yet while a table is unpickled must not be looked for in itself.
        arrays = self.__dict__.get("_arrays", {})
        if name not in arrays:
            raise AttributeError(f"the table has no array {name!r}; it has {', '.join(arrays)}")
        return np.asarray(arrays[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._arrays]

    def __repr__(self) -> str:
        shapes = (f"{name}: {array.dtype}{list(array.shape[1:]) or ''}" for name, array in self._arrays.items())
        return f"Table({len(self)} rows; {', '.join(shapes)})"

    def as_dict(self) -> dict[str, AnyArray]:
        """Columns (p,) by name, coordinates under names such as projection_0, as `trigpoint export` has them:
        `pandas.DataFrame(table.as_dict())`."""
        columns: dict[str, AnyArray] = {}
        for name, array in self._arrays.items():
            wide = {f"{name}_{i}": array[:, i] for i in range(array.shape[1])} if array.ndim == 2 else {name: array}
            columns |= wide
        return columns

    def as_structured(self) -> AnyArray:
        """The same columns as one structured array (p,)."""
        columns = self.as_dict()
        kinds: list[Any] = [(name, column.dtype) for name, column in columns.items()]
        rows = np.empty(len(self), dtype=kinds)
        for name, column in columns.items():
            rows[name] = column
        return rows
