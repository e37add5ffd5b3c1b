"""How good a fitted estimator's embedding is, in the figures that a run on disk has, on samples of its points."""

import numpy as np

from pipeline.estimator.base import Fitted
from pipeline.estimator.direct import DirectSpace, VectorMeasure
from pipeline.estimator.inverse import Embedded
from pipeline.estimator.paths import GeodesicSpace
from pipeline.estimator.settings import Settings
from pipeline.methods import DIRECTIONAL, METHODS
from pipeline.numerics.agreement import Pairs, n_sources_along_paths, residual_variances, stress
from pipeline.numerics.geodesics.rows import each_search
from pipeline.numerics.preprocessing import dominating_columns
from pipeline.numerics.statistics import continuity, trustworthiness
from pipeline.numerics.verdict import verdict
from pipeline.types import AnyArray, FloatArray, IntArray, Json

MOST_SAMPLED, N_SOURCES = 4000, 64


def quality_of(settings: Settings, fitted: Fitted, embedded: Embedded | None, n_threads: int) -> Json:
    """The figures by the names of a run's, and what they come to, the `verdict`."""
    answer, d = fitted.answer, fitted.space.embedder.answers.n_components
    coordinates = np.asarray(answer.coordinates[:, :d])
    rng = np.random.default_rng(settings.seed)
    sample = np.sort(rng.choice(len(coordinates), min(len(coordinates), MOST_SAMPLED), replace=False))
    figures = _distances(settings, fitted, embedded, coordinates, sample, n_threads)
    figures |= _neighborhoods(settings, fitted, embedded, coordinates, sample)
    left = 0 if settings.shortcuts == "cut" else len(fitted.short_circuits or [])
    judged = verdict(
        {
            "quality": figures,
            "judged_by": METHODS[settings.method].judged_by,
            "n_rows": len(fitted.place_of),
            "n_components": d,
            "components": fitted.in_pieces,
            "dominating_columns": _dominance(settings, embedded),
            "short_circuits": left,
        }
    )
    return {**figures, "verdict": judged.words, "level": judged.level}


def _distances(
    settings: Settings,
    fitted: Fitted,
    embedded: Embedded | None,
    coordinates: FloatArray,
    sample: IntArray,
    n_threads: int,
) -> Json:
    seen = _seen(settings, fitted, embedded, coordinates, sample, n_threads)
    if seen is None or METHODS[settings.method].takes_affinities:
        return {"residual_variance": None, "normalized_stress": None}
    variances, misfit = residual_variances(seen), stress(seen)
    return {
        "n_sources": len(seen.lengths),
        "residual_variance": [estimate.value for estimate in variances],
        "residual_variance_95": [list(estimate[1:]) for estimate in variances],
        "normalized_stress": misfit.value,
        "normalized_stress_95": list(misfit[1:]),
    }


def _seen(
    settings: Settings,
    fitted: Fitted,
    embedded: Embedded | None,
    coordinates: FloatArray,
    sample: IntArray,
    n_threads: int,
) -> Pairs | None:
    """Dissimilarities between sampled points, a few of them to all; to the landmarks where those are all that is known,
    None where not even those are kept."""
    space, rng = fitted.space, np.random.default_rng(settings.seed)
    along_paths = isinstance(space, GeodesicSpace)
    wanted = n_sources_along_paths(len(fitted.landmarks)) if along_paths else N_SOURCES
    sources = np.sort(rng.choice(sample, min(len(sample), wanted), replace=False))
    of_both = coordinates[sources], coordinates[sample], len(coordinates)
    if isinstance(space, GeodesicSpace):
        lengths = np.empty((len(sources), len(sample)))

        def take(batch: IntArray, found: FloatArray, place_of: IntArray) -> None:
            lengths[batch] = found[place_of[sample]].T

        each_search(space.graph, sources, take, n_threads)
        return Pairs(lengths, *of_both)
    if isinstance(space, DirectSpace) and isinstance(space.measure, VectorMeasure) and embedded is not None:
        rows = _first_rows(fitted, len(coordinates))
        points = space.measure.in_unit(embedded.rows[rows[sample]])
        return Pairs(space.measure.measured(points[np.searchsorted(sample, sources)], points), *of_both)
    if isinstance(space, DirectSpace):
        known = space.sampled
        of_landmarks = coordinates[fitted.place_of[fitted.landmarks]]
        return Pairs(known.to_landmarks.T, of_landmarks, coordinates[known.places], len(coordinates))
    return None


def _first_rows(fitted: Fitted, n_points: int) -> IntArray:
    """A row that each point is."""
    rows = np.empty(n_points, np.int64)
    embedded = np.flatnonzero(fitted.place_of >= 0)[::-1]
    rows[fitted.place_of[embedded]] = embedded
    return rows


def _neighborhoods(
    settings: Settings, fitted: Fitted, embedded: Embedded | None, coordinates: FloatArray, sample: IntArray
) -> Json:
    k = min(settings.n_neighbors or 1, (len(sample) - 1) // 2)
    if embedded is None or k < 1 or settings.metric_of_points != "euclidean":
        return {"trustworthiness": None, "continuity": None}
    points = embedded.rows[_first_rows(fitted, len(coordinates))[sample]]
    # Ranks do not change with the unit; squares of large numbers might overflow.
    points = np.ldexp(points.astype(np.float64), -int(np.frexp(np.abs(points).max())[1]))
    found = coordinates[sample]
    return {
        "trustworthiness": trustworthiness(points, found, k, seed=settings.seed)._asdict(),
        "continuity": continuity(points, found, k, seed=settings.seed)._asdict(),
    }


def _dominance(settings: Settings, embedded: Embedded | None) -> Json | None:
    """The columns that dominate all distances between rows, if there are such."""
    if embedded is None or settings.metric_of_points in DIRECTIONAL:
        return None
    rows: AnyArray = embedded.rows
    unit = -int(np.frexp(np.abs(rows).max())[1])
    columns, share = dominating_columns(np.ldexp(rows.astype(np.float64), unit).std(axis=0))
    return {"columns": columns.tolist(), "share": share, "n_columns": rows.shape[1]} if len(columns) else None
