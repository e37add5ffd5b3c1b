"""The data sets of the experiments, in the folder that TRIGPOINT_DATA names."""

import os
import sys
from pathlib import Path

import numpy as np

from pipeline.types import AnyArray


def arrays(name: str) -> dict[str, AnyArray]:
    """All arrays of a data set."""
    folder = os.environ.get("TRIGPOINT_DATA")
    if not folder:
        sys.exit("Set TRIGPOINT_DATA to a folder of data sets.")
    with np.load(Path(folder) / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}
