"""What a fitted space says of rows beside the coordinates that are wanted: the columns that a run on disk publishes,
arcs, and rows that are reconstructed together."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipeline.errors import InvalidInputError
from pipeline.estimator.base import Embedder, Fitted, Space, chunks
from pipeline.estimator.paths import GeodesicSpace
from pipeline.estimator.table import Table
from pipeline.methods import RANGES
from pipeline.numerics import checks
from pipeline.numerics.extension.joint import reconstruct_moments_jointly
from pipeline.numerics.extension.reconstruction import arc_of_moments
from pipeline.numerics.mds import LandmarkModel, Moments, moments_of
from pipeline.numerics.models.spectral import cluster_labels
from pipeline.numerics.statistics import ranks_among, ranks_of
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray

# Between new points: the shortest way over a landmark.
BOUND = "bound"


def table_of_fitted(fitted: Fitted, centers: FloatArray | None, n_threads: int) -> Table:
    """Every row of the training data."""
    space = fitted.space
    columns = space.embedder.columns(fitted.answer, space.nearest_of_points(n_threads))
    component = np.zeros(len(fitted.place_of), np.int64) if fitted.components is None else fitted.components
    rows = {name: fitted.of_rows(column) for name, column in columns.items()}
    return Table(rows | _flags(space, fitted.of_rows(fitted.answer.ambiguous), component.copy(), rows, centers))


def table_of_new(
    space: Space, rows: Any, calibration: dict[str, FloatArray], centers: FloatArray | None, n_threads: int
) -> Table:
    """Every new row, with where its trust columns rank among those of fitted rows taken as new."""
    space.check(rows)
    answers, parts, nearest, component = space.embedder.answers, [], [], []
    for chunk in chunks(rows.shape[0]):
        found = space.reached(rows[chunk], n_threads)
        parts.append(answers.among_others(answers.of(found.to_landmarks), found.kept))
        nearest.append(_among_others(found.nearest, found.kept))
        component.append(found.component)
    answer = answers.stacked(parts)
    columns = space.embedder.columns(answer, np.concatenate(nearest))
    trust = np.stack([columns[name] for name in calibration], axis=1)
    ranks = dict(zip(ranks_of(calibration), ranks_among(calibration, trust).T, strict=True))
    flags = _flags(space, answer.ambiguous, np.concatenate(component), columns, centers)
    return Table({name: np.ascontiguousarray(column) for name, column in (columns | ranks | flags).items()})


def calibration_of(fitted: Fitted, seed: int, n_threads: int) -> dict[str, FloatArray]:
    """The trust columns of fitted rows taken as if they were new, each in ascending order."""
    trust = np.sort(fitted.space.trust_as_new(fitted, seed, n_threads), axis=0)
    return dict(zip(fitted.space.embedder.trust_names, np.ascontiguousarray(trust.T), strict=True))


def arcs_of_new(space: Space, rows: Any, n_steps: int, n_threads: int) -> FloatArray:
    """Positions (p, n_steps, d) from the projection of each new row to its restricted reconstruction."""
    limits = RANGES["arc"]
    steps = checks.integer_in_range("n_steps", n_steps, int(limits.low), int(limits.high or 0), limits.about)
    space.check(rows)
    model, weight = _classical(space.embedder, "reconstruction_arc"), space.embedder.answers.weight
    arcs = np.full((rows.shape[0], steps, model.n_components), np.nan)
    for chunk in chunks(len(arcs)):
        found = space.reached(rows[chunk], n_threads)
        moments = moments_of(model, found.to_landmarks)
        for place, row in enumerate(np.flatnonzero(found.kept) + chunk.start):
            mine = Moments(moments.inner[place, None], moments.beta[place, None])
            arcs[row] = arc_of_moments(model, mine, steps, weight)
    return np.asarray(np.ldexp(arcs, space.embedder.coordinate_exponent))


def joint_table(space: Space, rows: Any, between: ArrayLike | str | None, n_threads: int) -> Table:
    """New rows reconstructed together, given how far they are from each other."""
    space.check(rows)
    model, most = _classical(space.embedder, "joint"), int(RANGES["joint"].high or 0)
    if rows.shape[0] > most:
        raise InvalidInputError(
            f"X has {rows.shape[0]} rows; joint takes at most {most} together: call it for blocks of them."
        )
    found = space.reached(rows, n_threads)
    joint = np.full((len(found.kept), model.n_components), np.nan)
    ambiguous, certified = np.zeros((2, len(found.kept)), np.bool_)
    if found.kept.any():
        apart = _between(space, rows, between, found.kept, n_threads)
        # In signed models squares keep the sign.
        moments, weight = moments_of(model, found.to_landmarks), space.embedder.answers.weight
        answer = reconstruct_moments_jointly(model, moments, apart * np.abs(apart), weight)
        joint[found.kept], ambiguous[found.kept] = answer.coordinates, answer.ambiguous
        certified[found.kept] = answer.certified
    joint = np.ldexp(joint, space.embedder.coordinate_exponent)
    return Table({"joint": joint, "ambiguous": ambiguous, "certified": certified})


def _between(space: Space, rows: Any, between: ArrayLike | str | None, kept: BoolArray, n_threads: int) -> FloatArray:
    if between is None or isinstance(between, str):
        if between is not None:
            checks.one_of("between", between, (BOUND,))
            _require_bounds(space)
        return space.between(rows, between == BOUND, n_threads)
    given = checks.finite_array("between", between, 2).astype(np.float64)
    checks.require_not_too_large("between", given)
    if given.shape != (len(kept), len(kept)):
        raise InvalidInputError(
            f"between has shape {given.shape}; X has {len(kept)} rows: give a row and a column for each."
        )
    return space.between_as_given(given, rows)[np.ix_(kept, kept)]


def _require_bounds(space: Space) -> None:
    if _classical(space.embedder, "joint").signed:
        raise InvalidInputError(
            "between='bound' does not go with similarities, which give no upper bounds of the distances between new "
            "rows: give the similarities between them, or leave it out where your kernel computes them."
        )


def _classical(embedder: Embedder, name: str) -> LandmarkModel:
    model = embedder.answers.model
    if not isinstance(model, LandmarkModel):
        raise InvalidInputError(
            f"{name} needs both the projection and the restricted reconstruction, which isomap, kernel-isomap, mds and "
            "kernel-mds have with extension='projection' or 'restricted'; the fitted model places points in one way "
            "only."
        )
    return model


def _flags(
    space: Space, ambiguous: BoolArray, component: IntArray, columns: dict[str, AnyArray], centers: FloatArray | None
) -> dict[str, AnyArray]:
    """Those that a run has: of fits along a graph always whether a row is ambiguous."""
    has_two = isinstance(space, GeodesicSpace) or space.embedder.answers.is_classical
    flags: dict[str, AnyArray] = {"ambiguous": ambiguous} if has_two else {}
    labels = {} if centers is None else {"labels": cluster_labels(columns["projection"], centers)}
    return flags | {"component": component} | labels


def _among_others(values: FloatArray, kept: BoolArray) -> FloatArray:
    """Values of the rows (p,) that are kept, NaN for the others."""
    everything = np.full((len(kept), *values.shape[1:]), np.nan)
    everything[kept] = values
    return everything
