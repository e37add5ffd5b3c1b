"""The landmarks of a run on objects, as a store keeps them and as the user's function takes them."""

from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.sources.objects import Objects
from pipeline.stages.stage import Outcome
from pipeline.types import AnyArray


def stored_objects(objects: Objects) -> dict[str, AnyArray]:
    """Rows of numbers as they are; of texts the bytes one after the other, and where each begins and the last ends.

    Texts of one width would all take as much as the longest, and lose the NULs that they end with.
    """
    if not isinstance(objects, list):
        return {"objects": objects}
    encoded = [text.encode(errors="surrogatepass") for text in objects]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"objects": np.frombuffer(b"".join(encoded), dtype=np.uint8), "offsets": offsets}


def landmark_objects(landmarks: Outcome) -> Any:
    """The landmarks as the user's function takes them."""
    stored = landmarks.ledger.read("objects").read()
    if not landmarks.figures["is_text"]:
        return stored
    bounds = pairwise(landmarks.ledger.read("offsets").read().tolist())
    return [stored[start:stop].tobytes().decode(errors="surrogatepass") for start, stop in bounds]
