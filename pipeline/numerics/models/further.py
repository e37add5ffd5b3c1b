"""Classical models with more components than were fitted, to see what these would explain."""

from collections.abc import Callable

from pipeline.numerics.mds import LandmarkModel, Model, MomentSums, project_moments
from pipeline.numerics.models.catalog import with_components
from pipeline.types import FloatArray

# With so many components, and with so many more than are fitted, if landmarks are not too many to embed a second time:
# less than a second, and 160 MB.
SHOWN_COMPONENTS, MORE_COMPONENTS, MOST_EMBEDDED_AGAIN = 10, 2, 2000


def further(
    model: Model, between: Callable[[], FloatArray], lengths: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Coordinates of the landmarks (m, e) and of points (p, e), given by their dissimilarities (p, m) to the landmarks,
    with as many components as are shown, as far as the landmarks have them; None if there are not more than fitted."""
    if not isinstance(model, LandmarkModel):
        return None
    most = min(model.n_positive, max(SHOWN_COMPONENTS, model.n_components + MORE_COMPONENTS))
    if most <= model.n_components or model.n_landmarks > MOST_EMBEDDED_AGAIN:
        return None
    larger = with_components(model, between(), most)
    sums = MomentSums(larger, len(lengths))
    sums.add(lengths)
    return larger.coordinates, project_moments(larger, sums.moments())
