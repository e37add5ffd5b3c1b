"""Array types used in annotations. Shapes stand in the docstrings.

`import scipy` is cheap: its subpackages are loaded when they are first used, so modules name them in full.
"""

from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
HashArray: TypeAlias = NDArray[np.uint64]
SparseArray: TypeAlias = "scipy.sparse.csr_array"
Json: TypeAlias = dict[str, Any]
