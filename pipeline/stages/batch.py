"""Stage 1 of an extension: the new rows scanned, and read as the fit read its own: same scale, columns and axes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.numerics import checks
from pipeline.numerics.preprocessing import Preprocessing
from pipeline.stages.preprocess import PreparedSource
from pipeline.stages.stage import Outcome
from pipeline.stages.validate import Validate
from pipeline.types import FloatArray


@dataclass(frozen=True)
class ValidateBatch(Validate):
    """Like the scan before a fit; but rows may all be the same, and must not be out of all proportion to the fit's."""

    exponent: int = 0

    def _refuse_content(self, ranges: FloatArray, largest: float, n_usable: int) -> None:
        if np.ldexp(largest, -self.exponent) > checks.LARGEST_SIZE:
            raise InvalidInputError(
                f"{self.source.name} reaches {largest:g} in absolute value, beyond {checks.LARGEST_SIZE:g} times the "
                "fitted data; squared distances would leave double precision: drop or rescale such rows."
            )


@dataclass(frozen=True)
class ReplayedSource(PreparedSource):
    """New rows with the preprocessing that `validated` and `axes` of the fit gave.

    They are kept in the precision that holds both their own values and those of the fit.
    """

    batch: Outcome | None = None
    fitted_dtype: np.dtype[Any] | None = None

    @property
    def identity(self) -> list[str]:
        content = [] if self.batch is None else [str(self.batch.figures["content"])]
        return [*content, *super().identity, f"points={self.preprocessing.dtype}"]

    @cached_property
    def preprocessing(self) -> Preprocessing:
        found = super().preprocessing
        return replace(found, dtype=np.result_type(found.dtype, self.fitted_dtype or found.dtype))
