"""How the column `spread` relates to true errors, and what it costs: the tables and the picture of docs/spread.md.

`python -m benchmarks.spread [FILE]` draws the picture into FILE; `--time` measures only what it costs. The faces need
TRIGPOINT_DATA.
"""

import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from benchmarks.measure import Measurement
from benchmarks.papers.data import arrays
from benchmarks.papers.pictures import save
from pipeline import LandmarkIsomap
from pipeline.estimator.paths import GeodesicSpace
from pipeline.jobs.fit import fit
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import answers_of
from pipeline.numerics.mds import LandmarkModel, classical_mds, moments_of, project_moments
from pipeline.numerics.registration import rigid_motion
from pipeline.settings import ClusterSettings, FitSettings
from pipeline.stages.stage import Outcome, Watch
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, FloatArray, IntArray

SEEDS, N_GROUPS = range(6), 10
ROLL_POINTS, NEW_POINTS, ROLL_LANDMARKS = 4000, 1000, 200
TIMED_POINTS, TIMED_LANDMARKS, TURNS, LIMIT = 200_000, 300, 7, 1.5


@dataclass(frozen=True)
class Case:
    """Rows (p, D) placed by an estimator from path lengths (p, m), in units of its model; and how far their coordinates
    are from the truth."""

    name: str
    isomap: LandmarkIsomap
    rows: FloatArray
    fitted: FloatArray
    lengths: AnyArray
    errors: FloatArray
    same_units: bool = True


def main() -> int:
    parser = ArgumentParser(prog="python -m benchmarks.spread", description=__doc__)
    parser.add_argument("picture", nargs="?", metavar="FILE", help="draw the picture into this file")
    parser.add_argument("--time", action="store_true", help="measure only what the column costs")
    asked = parser.parse_args()
    if not asked.time:
        _relate(asked.picture)
    measurements = [_timed("isomap", 2), _timed("isomap", 10), _timed("mds", 2)]
    for measurement in measurements:
        print(measurement, flush=True)
    return 0 if all(map(Measurement.holds, measurements)) else 1


def _relate(picture: str | None) -> None:
    columns = list(COLUMNS)
    print(f"| rows, error | spread | range | {' | '.join(columns[1:])} | median spread / median error |")
    print(f"|---|---|---|{'---|' * len(columns)}")
    drawn: dict[str, list[FloatArray]] = {}
    for cases in _all_cases():
        found = np.array([[spearmanr(values, case.errors)[0] for values in _columns(case)] for case in cases])
        mean, spread = found.mean(axis=0), found[:, 0]
        ratios = [np.median(_spread(case)) / np.median(case.errors) for case in cases if case.same_units]
        cells = [f"{mean[0]:.2f}", f"{spread.min():.2f} to {spread.max():.2f}", *(f"{value:.2f}" for value in mean[1:])]
        cells.append(f"{np.mean(ratios):.2g}" if ratios else "")
        print(f"| {cases[0].name} | {' | '.join(cells)} |", flush=True)
        drawn[cases[0].name] = [_by_tenths(case) for case in cases]
    if picture is not None:
        _draw(drawn, Path(picture))


def _all_cases() -> Iterator[list[Case]]:
    for n_neighbors in (10, 15):
        for noise in (0.0, 0.1, 0.2, 0.3):
            yield [_roll(n_neighbors, noise, seed) for seed in SEEDS]
    yield [_roll(15, 0.1, seed, n_new=NEW_POINTS) for seed in SEEDS]
    yield [_roll(15, 0.1, seed, scaled=True) for seed in SEEDS]
    if os.environ.get("TRIGPOINT_DATA"):
        for n_landmarks in (100, 200):
            yield [_faces(n_landmarks, seed) for seed in SEEDS]
    else:
        print("(faces left out: set TRIGPOINT_DATA)")
    digits = load_digits().data
    whole = LandmarkIsomap(10, 5, n_landmarks=len(digits), random_state=0).fit(digits).embedding_
    for n_landmarks in (100, 300):
        yield [_digits(digits, whole, n_landmarks, seed) for seed in SEEDS]


def _roll(n_neighbors: int, noise: float, seed: int, n_new: int = 0, scaled: bool = False) -> Case:
    """Points of a roll with noise in each coordinate, of which the last are placed as new ones; the truth is where they
    are on the flat sheet, after the rigid motion (if `scaled`, the similarity) that fits best."""
    roll = swiss_roll(ROLL_POINTS + n_new, seed)
    points = roll.points + noise * np.random.default_rng(seed + 100).normal(size=roll.points.shape)
    fitted, rows = points[:ROLL_POINTS], points[ROLL_POINTS:] if n_new else points
    sheet = roll.sheet[ROLL_POINTS:] if n_new else roll.sheet
    isomap = LandmarkIsomap(n_neighbors, 2, n_landmarks=ROLL_LANDMARKS, random_state=seed).fit(fitted)
    placed = isomap.transform(rows) if n_new else isomap.embedding_
    name = f"{'new rows of a ' * bool(n_new)}roll, k = {n_neighbors}, noise {noise}{', error up to scale' * scaled}"
    return Case(name, isomap, rows, fitted, _lengths(isomap, rows, n_new), _distances(placed, sheet, scaled))


def _faces(n_landmarks: int, seed: int) -> Case:
    """Images of a face in three coordinates; the truth is its pose and light, as far as an affine map gives them."""
    data = arrays("isomap_faces_32x32")
    rows, truth = data["X"].astype(np.float64), data["params"]
    isomap = LandmarkIsomap(6, 3, n_landmarks=n_landmarks, random_state=seed).fit(rows)
    given = np.column_stack([isomap.embedding_, np.ones(len(rows))])
    errors = np.linalg.norm(given @ np.linalg.lstsq(given, truth, rcond=None)[0] - truth, axis=1)
    return Case(f"faces, m = {n_landmarks}", isomap, rows, rows, _lengths(isomap, rows), errors, same_units=False)


def _digits(rows: FloatArray, whole: FloatArray, n_landmarks: int, seed: int) -> Case:
    """Images of digits in five coordinates; the truth is the embedding in which every image is a landmark."""
    isomap = LandmarkIsomap(10, 5, n_landmarks=n_landmarks, random_state=seed).fit(rows)
    errors = _distances(isomap.embedding_, whole)
    return Case(f"digits, m = {n_landmarks}", isomap, rows, rows, _lengths(isomap, rows), errors)


def _distances(placed: FloatArray, truth: FloatArray, scaled: bool = False) -> FloatArray:
    """Of each row from the truth, after the motion that fits best."""
    turned, goal = rigid_motion(placed, truth).apply(placed), truth
    if scaled:
        turned, goal = turned - turned.mean(axis=0), truth - truth.mean(axis=0)
        turned = turned * (turned * goal).sum() / (turned * turned).sum()
    return np.asarray(np.linalg.norm(turned - goal, axis=1))


def _lengths(isomap: LandmarkIsomap, rows: FloatArray, n_new: int = 0) -> AnyArray:
    """Path lengths to the landmarks."""
    space = _space(isomap)
    return space.reached(rows, 1).to_landmarks if n_new else space.to_landmarks


def _space(isomap: LandmarkIsomap) -> GeodesicSpace:
    space = isomap._space
    if not isinstance(space, GeodesicSpace):
        raise TypeError(f"{type(space).__name__} has no graph")
    return space


def _model(case: Case) -> LandmarkModel:
    model = case.isomap.model_
    if not isinstance(model, LandmarkModel):
        raise TypeError(f"{type(model).__name__} is not classical")
    return model


def _spread(case: Case) -> FloatArray:
    return np.asarray(np.ldexp(answers_of(case.isomap.model_, spread=True).of(case.lengths).trust[:, 3], _unit(case)))


def _unit(case: Case) -> int:
    return int(case.isomap._space.embedder.exponent)


def _columns(case: Case) -> list[FloatArray]:
    return [column(case) for column in COLUMNS.values()]


def _without_tenths(case: Case) -> FloatArray:
    """Tenths of the landmarks left out in turn, one in ten each."""
    return _left_out(case, np.arange(len(case.isomap.landmark_indices_)) % N_GROUPS)


def _without_regions(case: Case) -> FloatArray:
    """The same, landmarks that are near each other left out together."""
    coordinates = _model(case).coordinates
    return _left_out(case, KMeans(N_GROUPS, n_init=3, random_state=0).fit_predict(coordinates))


def _left_out(case: Case, groups: IntArray) -> FloatArray:
    """The spread of coordinates when groups of landmarks are left out in turn, the others are embedded anew, and the
    result is moved onto the whole."""
    model, places = _model(case), []
    for group in range(N_GROUPS):
        kept = groups != group
        part = classical_mds(_between(case)[np.ix_(kept, kept)], model.n_components)
        motion = rigid_motion(part.coordinates, model.coordinates[kept])
        places.append(motion.apply(project_moments(part, moments_of(part, case.lengths[:, kept]))))
    return _jackknife(np.array(places))


def _between(case: Case) -> FloatArray:
    """Squared lengths between the landmarks; no rows of these sets are the same."""
    between = _space(case.isomap).to_landmarks[case.isomap.landmark_indices_].astype(np.float64)
    return np.asarray((between + between.T) ** 2 / 4)


def _jackknife(places: FloatArray) -> FloatArray:
    """Of g sets of coordinates (g, p, d), each without one of the groups."""
    g = len(places)
    return np.asarray(np.sqrt((g - 1) / g * ((places - places.mean(axis=0)) ** 2).sum(axis=(0, 2))))


def _without_neighbors(case: Case) -> FloatArray:
    """Each of a row's own neighbors left out in turn."""
    model, k, to_landmarks = _model(case), case.isomap.n_neighbors, _space(case.isomap).to_landmarks
    own = case.rows is case.fitted
    apart, near = NearestNeighbors(n_neighbors=k + own).fit(case.fitted).kneighbors(case.rows)
    apart, near = np.ldexp(apart[:, own:], -_unit(case)), near[:, own:]
    ways = np.array([apart[:, [j]] + to_landmarks[near[:, j]] for j in range(k)])
    through, first = ways.argmin(axis=0), ways.min(axis=0)
    np.put_along_axis(ways, through[None], np.inf, axis=0)
    second = ways.min(axis=0)
    lengths = (np.where(through == j, second, first) for j in range(k))
    return _jackknife(np.array([project_moments(model, moments_of(model, each)) for each in lengths]))


def _residual(case: Case) -> FloatArray:
    return np.abs(answers_of(case.isomap.model_).of(case.lengths).trust[:, 0])


def _from_center(case: Case) -> FloatArray:
    model = _model(case)
    return np.asarray(np.linalg.norm(project_moments(model, moments_of(model, case.lengths)), axis=1))


# What rows are ranked by.
COLUMNS = {
    "spread": _spread,
    "without tenths": _without_tenths,
    "without regions": _without_regions,
    "without neighbors": _without_neighbors,
    "size of residual": _residual,
    "distance from center": _from_center,
}


def _by_tenths(case: Case) -> FloatArray:
    """The median error of each tenth of the rows, by rising spread, over the median of all."""
    order = np.argsort(_spread(case))
    return np.array([np.median(case.errors[part]) for part in np.array_split(order, 10)]) / np.median(case.errors)


def _draw(drawn: dict[str, list[FloatArray]], path: Path) -> None:
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name in ("roll, k = 15, noise 0.1", "faces, m = 100", "digits, m = 100"):
        if name in drawn:
            axes.plot(range(1, 11), np.mean(drawn[name], axis=0), "o-", label=name, markersize=4)
    axes.axhline(1, color="0.7", linewidth=0.8)
    axes.set(
        xlabel="tenth of the rows, by rising spread", ylabel="median error / that of all rows", xticks=range(1, 11)
    )
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, path)


class _Embedding(Watch):
    """Times the stage `embed` by the seconds of the processor: other programs disturb them less."""

    def __init__(self) -> None:
        self.seconds = np.inf

    def started(self, ledger: StageLedger, n_partitions: int, n_missing: int) -> None:
        if ledger.stage == "embed":
            self._start = time.process_time()

    def finished(self, outcome: Outcome) -> None:
        if outcome.ledger.stage == "embed":
            self.seconds = time.process_time() - self._start


def _timed(method: str, n_components: int) -> Measurement:
    """The stage with the column and without, in turns over the same distances: another `diagonal_weight` each time
    makes it run again and nothing before it."""
    with tempfile.TemporaryDirectory() as folder:
        points = swiss_roll(TIMED_POINTS, 0).points @ np.random.default_rng(0).normal(size=(3, 20))
        np.save(f"{folder}/points.npy", points)
        turns = [
            [_seconds(folder, method, n_components, spread, 1 + turn / 100) for spread in (False, True)]
            for turn in range(TURNS)
        ]
    without, with_it = np.min(turns, axis=0)
    shape = f"{TIMED_POINTS:,} points, m={TIMED_LANDMARKS}, d={n_components}"
    key = f"spread-{method}-{n_components}"
    return Measurement(key, f"embed of {method} with spread, {shape}", with_it, "without", without, LIMIT)


def _seconds(folder: str, method: str, n_components: int, spread: bool, weight: float) -> float:
    settings = FitSettings(
        source=f"{folder}/points.npy",
        store=f"{folder}/run",
        method=method,
        n_components=n_components,
        n_landmarks=TIMED_LANDMARKS,
        diagonal_weight=weight,
        spread=spread,
        cluster=ClusterSettings(kind="serial"),
    )
    watch = _Embedding()
    fit(settings, watch)
    return watch.seconds


if __name__ == "__main__":
    sys.exit(main())
