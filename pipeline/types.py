"""Array types used in annotations. Shapes stand in the docstrings."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
HashArray: TypeAlias = NDArray[np.uint64]
Json: TypeAlias = dict[str, Any]
