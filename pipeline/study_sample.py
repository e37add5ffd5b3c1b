"""A sample of a source, small enough for memory: what a study is made on.

Rows come from blocks spread over the source, so that of a large one only some is read. Preprocessing takes its figures
from the sample. Rows that repeat count once, as in a fit.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.errors import InvalidInputError
from pipeline.inputs import AnySource, as_table
from pipeline.numerics import checks
from pipeline.numerics.graph import collapse_duplicates
from pipeline.numerics.landmarks import random_landmarks
from pipeline.numerics.preprocessing import Preprocessing, principal_axes, scatter_matrix
from pipeline.sources import Source
from pipeline.sources.proximities import ProximitySource, landmark_dissimilarities
from pipeline.stages.preprocess import point_dtype
from pipeline.stages.validate import usable_rows
from pipeline.study_settings import StudySettings
from pipeline.types import AnyArray, FloatArray, IntArray

# A source of up to a million rows is read as a whole.
MOST_BLOCKS, BLOCK_ROWS, BLOCK_BYTES = 256, 4096, 1 << 25
# What a sample may take in memory, in double precision.
MOST_BYTES = 1 << 31
# Of few rows so many are held out: one in five.
HELD_OUT_SHARE = 5
# Fewer say nothing.
LEAST_ROWS = 20
LISTED_ROWS = 5
# Not the seed of anything else that is drawn.
SAMPLING = 7


@dataclass(frozen=True, eq=False)
class Sample:
    """What is known of distinct points, those to be held out last: vectors (s, D) in units of 2^exponent of the user's,
    or the dissimilarities (s, s) between them."""

    values: AnyArray
    n_held_out: int
    exponent: int

    @property
    def n_training(self) -> int:
        return len(self.values) - self.n_held_out


def drawn_sample(settings: StudySettings, source: AnySource) -> Sample:
    """A seeded sample in random order."""
    if isinstance(source, ProximitySource):
        return _of_proximities(settings, source)
    return _of_vectors(settings, as_table(source))


def sample_sizes(settings: StudySettings, n_points: int) -> tuple[int, int]:
    """How many of so many points are to choose landmarks among, and how many to be held out."""
    if n_points < LEAST_ROWS:
        raise InvalidInputError(f"a study needs at least {LEAST_ROWS} distinct rows, and there are {n_points}.")
    n_held_out = min(settings.held_out, n_points // HELD_OUT_SHARE)
    return min(settings.sample, n_points - n_held_out), n_held_out


def spread_rows(n_rows: int, n_wanted: int, block_rows: int, seed: int) -> IntArray:
    """Rows, rising, drawn from blocks that are spread over all: one at random in each of up to 256 equal parts."""
    rng = np.random.default_rng([SAMPLING, seed])
    n_blocks = min(MOST_BLOCKS, -(-n_rows // block_rows))
    bounds = (np.arange(n_blocks + 1) * n_rows) // n_blocks
    blocks = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        start = first + int(rng.integers(max(1, last - first - block_rows + 1)))
        blocks.append(np.arange(start, min(start + block_rows, last)))
    pool = np.concatenate(blocks)
    return np.sort(rng.choice(pool, min(len(pool), n_wanted), replace=False))


def read_rows(source: Source, rows: IntArray, block_rows: int) -> AnyArray:
    """Rows with these numbers, rising, read in pieces of no more than so many."""
    pieces = np.split(rows, np.flatnonzero(np.diff(rows // block_rows)) + 1)
    return np.concatenate([source.read(int(piece[0]), int(piece[-1]) + 1)[piece - piece[0]] for piece in pieces])


def _of_vectors(settings: StudySettings, source: Source) -> Sample:
    n_rows, n_columns = source.shape
    wanted = sum(sample_sizes(settings, n_rows))
    if 8 * wanted * n_columns > MOST_BYTES:
        raise InvalidInputError(
            f"sample={settings.sample} and held_out={settings.held_out} rows of {n_columns} columns take more than "
            f"{MOST_BYTES >> 20} MiB; lower them, or choose fewer columns."
        )
    block_rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * n_columns)))
    rows = spread_rows(n_rows, wanted, block_rows, settings.seed)
    values = read_rows(source, rows, block_rows)
    usable = usable_rows(values)
    if settings.missing == "error" and not usable.all():
        listed = ", ".join(map(str, rows[~usable][:LISTED_ROWS]))
        raise InvalidInputError(
            f"{source.name} has NaN or infinite entries in {np.count_nonzero(~usable)} of {len(rows)} sampled rows, "
            f"first in rows {listed}; fill them, or choose missing='drop'."
        )
    preprocessing = _preprocessing(settings, source, values[usable])
    points = preprocessing.apply(values[usable])
    distinct = collapse_duplicates(points).first_rows
    _, n_held_out = sample_sizes(settings, len(distinct))
    return Sample(_shuffled(points[distinct], settings.seed), n_held_out, preprocessing.result_exponent)


def _of_proximities(settings: StudySettings, source: ProximitySource) -> Sample:
    n_training, n_held_out = sample_sizes(settings, source.n_points)
    rows = random_landmarks(source.n_points, n_training + n_held_out, settings.seed)
    between = landmark_dissimilarities(source.entries(rows, rows), rows, rows, source.name)
    if not between.any():
        raise InvalidInputError(f"{source.name} is 0 between all sampled points; there is nothing to embed.")
    exponent = int(np.frexp(between.max())[1])
    order = _order(len(rows), settings.seed)
    return Sample(np.ldexp(between[np.ix_(order, order)], -exponent), n_held_out, exponent)


def _order(n_points: int, seed: int) -> IntArray:
    return np.random.default_rng([SAMPLING + 1, seed]).permutation(n_points)


def _shuffled(points: AnyArray, seed: int) -> AnyArray:
    return points[_order(len(points), seed)]


def _preprocessing(settings: StudySettings, source: Source, values: AnyArray) -> Preprocessing:
    """What a fit would do to the data, with figures of a sample (s, D) of it."""
    if not len(values):
        raise InvalidInputError(
            f"all sampled rows of {source.name} have NaN or infinite entries; choose other columns."
        )
    numbers: FloatArray = values.astype(np.float64)
    checks.require_squarable(source.name, numbers)
    exponent, dtype = int(np.frexp(np.abs(numbers).max())[1]), point_dtype(source.dtype)
    if not settings.standardize and settings.pca is None:
        return Preprocessing(exponent, dtype)
    scaled = np.ldexp(numbers, -exponent)
    constant = (scaled == scaled[0]).all(axis=0)
    center = np.where(constant, scaled[0], scaled.mean(axis=0))
    spread = np.where(constant, 1.0, scaled.std(axis=0)) if settings.standardize else None
    centered = Preprocessing(exponent, dtype, center, spread)
    if settings.pca is None:
        return centered
    axes, _ = principal_axes(scatter_matrix(centered.apply(numbers).astype(np.float64)), settings.pca)
    return Preprocessing(exponent, dtype, center, spread, axes)
