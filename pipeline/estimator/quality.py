"""How good a fitted estimator's embedding is, in the figures that a run on disk has, on samples of its points."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.estimator.base import Fitted
from pipeline.estimator.direct import DirectSpace, VectorMeasure
from pipeline.estimator.inverse import Embedded
from pipeline.estimator.paths import GeodesicSpace
from pipeline.estimator.settings import Settings
from pipeline.methods import DIRECTIONAL, METHODS
from pipeline.numerics.agreement import Pairs, n_sources_along_paths, residual_variances, stress
from pipeline.numerics.geodesics.rows import each_search
from pipeline.numerics.models.further import further
from pipeline.numerics.preprocessing import dominating_columns
from pipeline.numerics.statistics import continuity, trustworthiness
from pipeline.numerics.verdict import verdict
from pipeline.types import AnyArray, FloatArray, IntArray, Json

MOST_SAMPLED, N_SOURCES = 4000, 64


def quality_of(settings: Settings, fitted: Fitted, embedded: Embedded | None, n_threads: int) -> Json:
    """The figures by the names of a run's, and what they come to, the `verdict` and its `level`."""
    sample = _Sample(settings, fitted, embedded, n_threads)
    figures = {**sample.distances(), **sample.neighborhoods()}
    judged = verdict(
        {
            "quality": figures,
            "judged_by": METHODS[settings.method].judged_by,
            "n_rows": len(fitted.place_of),
            "n_components": fitted.space.embedder.answers.n_components,
            "components": fitted.in_pieces,
            "dominating_columns": _dominance(settings, embedded),
            "short_circuits": 0 if settings.shortcuts == "cut" else len(fitted.short_circuits or []),
        }
    )
    return {**figures, "verdict": judged.words, "level": judged.level}


@dataclass(frozen=True)
class _Sample:
    """Some of the embedded points, by their places; distances in the units of the space."""

    settings: Settings
    fitted: Fitted
    embedded: Embedded | None
    n_threads: int

    @cached_property
    def coordinates(self) -> FloatArray:
        """Of all points, by the first way of placing them."""
        return np.asarray(self.fitted.answer.coordinates[:, : self.fitted.space.embedder.answers.n_components])

    @cached_property
    def places(self) -> IntArray:
        space, n = self.fitted.space, len(self.coordinates)
        if isinstance(space, DirectSpace):
            return space.sampled.places
        return np.sort(self._rng.choice(n, min(n, MOST_SAMPLED), replace=False))

    @cached_property
    def sources(self) -> IntArray:
        """Which of the sample the others are seen from, by their places in it."""
        along_paths = isinstance(self.fitted.space, GeodesicSpace)
        wanted = n_sources_along_paths(len(self.fitted.landmarks)) if along_paths else N_SOURCES
        return np.sort(self._rng.choice(len(self.places), min(len(self.places), wanted), replace=False))

    def distances(self) -> Json:
        if METHODS[self.settings.method].takes_affinities:
            return {"residual_variance": None, "normalized_stress": None}
        landmarks = self.coordinates[self.fitted.place_of[self.fitted.landmarks]]
        seen = self._seen(landmarks, self.coordinates[self.places])
        variances, misfit = residual_variances(seen), stress(seen)
        return {
            **self._beyond(),
            "measured_from": "landmarks" if self._apart is None else "points",
            "n_sources": len(seen.lengths),
            "residual_variance": [estimate.value for estimate in variances],
            "residual_variance_95": [list(estimate[1:]) for estimate in variances],
            "normalized_stress": misfit.value,
            "normalized_stress_95": list(misfit[1:]),
        }

    def neighborhoods(self) -> Json:
        k = min(self.settings.n_neighbors or 1, (len(self.places) - 1) // 2)
        if self.embedded is None or k < 1 or self.settings.metric_of_points != "euclidean":
            return {"trustworthiness": None, "continuity": None}
        points = self.embedded.rows[self._rows]
        # Ranks do not change with the unit; squares of large numbers might overflow.
        points = np.ldexp(points.astype(np.float64), -int(np.frexp(np.abs(points).max())[1]))
        found, seed = self.coordinates[self.places], self.settings.seed
        return {
            "trustworthiness": trustworthiness(points, found, k, seed=seed)._asdict(),
            "continuity": continuity(points, found, k, seed=seed)._asdict(),
        }

    def _beyond(self) -> Json:
        """Residual variance of classical models with more components than are fitted."""
        between = self._between
        larger = None if between is None else further(self.fitted.model, lambda: between, self._to_landmarks)
        if larger is None:
            return {}
        variances = residual_variances(self._seen(*larger))
        return {"residual_variance_beyond": [estimate.value for estimate in variances[self.coordinates.shape[1] :]]}

    def _seen(self, of_landmarks: FloatArray, of_sample: FloatArray) -> Pairs:
        """Dissimilarities of the sample beside coordinates; to the landmarks where no others are known."""
        if self._apart is None:
            return Pairs(self._to_landmarks.T, of_landmarks, of_sample, len(self.coordinates))
        return Pairs(self._apart, of_sample[self.sources], of_sample, len(self.coordinates))

    @cached_property
    def _apart(self) -> FloatArray | None:
        """Dissimilarities (s, p) of the sources to the sample; None where only those to landmarks are known."""
        space = self.fitted.space
        if isinstance(space, GeodesicSpace):
            lengths = np.empty((len(self.sources), len(self.places)))

            def take(batch: IntArray, found: FloatArray, place_of: IntArray) -> None:
                lengths[batch] = found[place_of[self.places]].T

            each_search(space.graph, self.places[self.sources], take, self.n_threads)
            return lengths
        if isinstance(space, DirectSpace) and isinstance(space.measure, VectorMeasure) and self.embedded is not None:
            points = space.measure.in_unit(self.embedded.rows[self._rows])
            return space.measure.measured(points[self.sources], points)
        return None

    @property
    def _to_landmarks(self) -> FloatArray:
        space = self.fitted.space
        if isinstance(space, GeodesicSpace):
            return np.asarray(space.to_landmarks[self.places], dtype=np.float64)
        if isinstance(space, DirectSpace):
            return np.asarray(space.sampled.to_landmarks, dtype=np.float64)
        raise TypeError(f"{type(space).__name__} keeps no dissimilarities to landmarks")

    @property
    def _between(self) -> FloatArray | None:
        """Dissimilarities between the landmarks, where they are kept."""
        space, landmarks = self.fitted.space, self.fitted.place_of[self.fitted.landmarks]
        if isinstance(space, GeodesicSpace):
            found = space.to_landmarks[landmarks].astype(np.float64)
            return np.asarray((found + found.T) / 2)
        if isinstance(space, DirectSpace) and isinstance(space.measure, VectorMeasure):
            return space.measure.measured(space.measure.landmarks, space.measure.landmarks)
        return None

    @property
    def _rows(self) -> IntArray:
        """A row that each point of the sample is."""
        rows = np.empty(len(self.coordinates), np.int64)
        embedded = np.flatnonzero(self.fitted.place_of >= 0)[::-1]
        rows[self.fitted.place_of[embedded]] = embedded
        return rows[self.places]

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.settings.seed)


def _dominance(settings: Settings, embedded: Embedded | None) -> Json | None:
    """The columns that dominate all distances between rows, if there are such."""
    if embedded is None or settings.metric_of_points in DIRECTIONAL:
        return None
    rows: AnyArray = embedded.rows
    unit = -int(np.frexp(np.abs(rows).max())[1])
    columns, share = dominating_columns(np.ldexp(rows.astype(np.float64), unit).std(axis=0))
    return {"columns": columns.tolist(), "share": share, "n_columns": rows.shape[1]} if len(columns) else None
