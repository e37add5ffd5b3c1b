"""A function of the user's that compares two objects: imported where it is needed, and every answer looked at."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from math import isfinite
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.types import FloatArray


@dataclass(frozen=True)
class Comparison:
    """What two objects are to each other by a function `package.module:function`: a distance, or with `is_kernel` an
    inner product, which may be negative."""

    function: str
    is_kernel: bool = False

    @property
    def argument(self) -> str:
        """The setting that names it."""
        return "kernel" if self.is_kernel else "metric"

    def table(self, objects: Any, landmarks: Any, first_row: int) -> FloatArray:
        """Values (p, b) of objects, which are the rows from `first_row` on, to landmarks: one call for each."""
        values = np.empty((len(objects), len(landmarks)))
        for i, one in enumerate(objects):
            for j, other in enumerate(landmarks):
                values[i, j] = self._checked(self._call(one, other), first_row + i, j)
        return values

    def own(self, objects: Any, first_row: int) -> FloatArray:
        """Values (p,) of objects to themselves."""
        found = [self._checked(self._call(one, one), first_row + i, None) for i, one in enumerate(objects)]
        return np.array(found, dtype=np.float64)

    def require_importable(self) -> None:
        """Refuse a function that cannot be had, before anything runs."""
        if not callable(self._call):
            raise InvalidInputError(f"{self.argument}={self.function!r} is not a function.")

    @cached_property
    def _call(self) -> Callable[[Any, Any], Any]:
        module, _, name = self.function.partition(":")
        here = os.getcwd()
        added = here not in sys.path
        # As with `python -m`: what stands in the folder of the command can be named.
        sys.path[:0] = [here] * added
        try:
            found: Callable[[Any, Any], Any] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise InvalidInputError(
                f"{self.argument}={self.function!r} cannot be imported: {error}; it must be installed, or a module in "
                "the folder of the command, wherever it is evaluated."
            ) from error
        finally:
            if added:
                sys.path.remove(here)
        return found

    def _checked(self, value: Any, row: int, landmark: int | None) -> float:
        number = float(value)
        if isfinite(number) and (self.is_kernel or number >= 0):
            return number
        other = "itself" if landmark is None else f"landmark {landmark}"
        wanted = "finite" if self.is_kernel else "finite and at least 0"
        raise InvalidInputError(
            f"{self.argument}={self.function!r} gives {number!r} for row {row} and {other}; it must be {wanted}."
        )
