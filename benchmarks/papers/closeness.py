"""Distances to all images of a set from those to m of them: how close they come [E fig. 4, 5]

    TRIGPOINT_DATA=... python -m benchmarks.papers.closeness [picture.png]

Every image is left out of its set in turn, m members are chosen greedily among the others, and its distances to all
others are approximated from those to the chosen. The closeness score is 1 less the mean relative error.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from benchmarks.papers.data import arrays
from benchmarks.papers.pictures import save
from pipeline.numerics.landmarks.subset import (
    SubsetDistances,
    distance_kernel,
    gram_matrix,
    kernel_of_objects,
    semi_least_squares,
    trace_greedy,
)
from pipeline.numerics.models.metrics import distances
from pipeline.types import FloatArray, IntArray

N_PERSONS, N_GROUPS = 20, 9
# Of fig. 4 and fig. 5: images in a set on average, and the numbers of members compared with.
FEW_IMAGES, FEW_SIZES = 28, tuple(range(1, 11))
MANY_IMAGES, MANY_SIZES = 78, (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30)
# One of ten images of a person is left out, and where all nine others are compared with nothing is approximated.
PERSON_SIZES = tuple(range(1, 9))
SHOWN_SIZES = (1, 2, 3, 5, 8, 10, 20, 30)
# Every third image of a large set is left out in turn: more change the scores by less than their rounding.
STEP = 3
# Of fig. 4 and 5: the distance and g. Other choices are compared at one number of members.
PAPER, COMPARED = ("d = h", "constant"), 5
EPSILON = float(np.finfo(np.float64).eps)


class LeftOut(NamedTuple):
    """An object that is no member of its set: the members' kernel (n, n), its own with them (1, n) and itself (1,).

    `origin` is the member that its kernel is measured from, if any, and with which it has to be compared.
    """

    gram: FloatArray
    kernel: FloatArray
    own: FloatArray
    origin: int | None

    def chosen(self, n_chosen: int) -> IntArray:
        """Members to compare with: those that capture most of the trace, one after the other [E eq. 24]."""
        if self.origin is None:
            return trace_greedy(self.gram, n_chosen)
        others = trace_greedy(self.gram, n_chosen - 1) if n_chosen > 1 else np.empty(0, dtype=np.int64)
        return np.concatenate([[self.origin], others])


def with_constant(between: FloatArray, to_members: FloatArray) -> LeftOut:
    """g the least constant for which no value between members is negative; the paper does not say which it took."""
    g = between.max() ** 2 / 4
    of_members = np.full(len(between), g)
    kernel = distance_kernel(to_members[None], [g], of_members)
    return LeftOut(distance_kernel(between, of_members, of_members), kernel, np.array([2 * g]), None)


def with_member(between: FloatArray, to_members: FloatArray) -> LeftOut:
    """g(q) = d^2(q, q0) / 2, q0 the member with the least sum of distances to the others."""
    origin = int(np.argmin(between.sum(axis=0)))
    kernel, own = kernel_of_objects(to_members[None], between[origin], origin)
    return LeftOut(gram_matrix(between, origin), kernel, own, origin)


KERNELS: dict[str, Callable[[FloatArray, FloatArray], LeftOut]] = {"constant": with_constant, "member": with_member}


def nystrom(gram: FloatArray, subset: IntArray) -> SubsetDistances:
    """Nystrom's approximation from the same kernel values: W = pinv(K_RR) K_RQ [E sec. 9]."""
    within = gram[np.ix_(subset, subset)]
    weights = np.linalg.pinv(within, rcond=len(subset) * EPSILON, hermitian=True) @ gram[subset]
    return SubsetDistances(subset, np.ascontiguousarray(weights), gram.diagonal().copy())


def by_semi_least_squares(left_out: LeftOut, subset: IntArray) -> FloatArray:
    return semi_least_squares(left_out.gram, subset).squared_distances(left_out.kernel[:, subset], left_out.own)


def by_nystrom(left_out: LeftOut, subset: IntArray) -> FloatArray:
    return nystrom(left_out.gram, subset).squared_distances(left_out.kernel[:, subset], left_out.own)


def by_approximate_inverse(left_out: LeftOut, subset: IntArray) -> FloatArray:
    """Nystrom as the paper has it: an approximate inverse of K, applied to the kernel with all members [E sec. 9].

    Approximate eigenvectors sqrt(m/n) K_QR U / S are not orthonormal, which their use as an inverse takes for granted.
    """
    gram = left_out.gram
    n, m = len(gram), len(subset)
    S, U = np.linalg.eigh(gram[np.ix_(subset, subset)])
    kept = np.abs(S) > m * EPSILON * np.abs(S).max()
    vectors = np.sqrt(m / n) * gram[:, subset] @ (U[:, kept] / S[kept])
    beta = (left_out.kernel @ vectors / (n / m * S[kept])) @ vectors.T
    return np.asarray(np.maximum(0, left_out.own[:, None] - 2 * beta @ gram + gram.diagonal()))


APPROXIMATIONS: dict[str, Callable[[LeftOut, IntArray], FloatArray]] = {
    "semi-least squares": by_semi_least_squares,
    "Nyström": by_nystrom,
    "Nyström as printed": by_approximate_inverse,
}


@dataclass(frozen=True)
class Target:
    """What is to be approximated: that power of a distance d between images of a set (n, D)."""

    distances: Callable[[FloatArray], FloatArray]
    power: int = 1


def hamming(images: FloatArray) -> FloatArray:
    """Numbers of pixels (n, n) on different sides of the mean gray of the set."""
    bright = (images > images.mean()).astype(np.float64)
    return distances("cityblock", bright, bright)


TARGETS = {
    "d = h": Target(hamming),
    "d = √h": Target(lambda images: np.sqrt(hamming(images)), power=2),
    "Euclidean": Target(lambda images: distances("euclidean", images, images)),
}


class Pictures(NamedTuple):
    """Sets of images (n, D), the numbers of members to compare with, and which images are left out in turn."""

    sets: list[FloatArray]
    sizes: Sequence[int]
    step: int = 1


class Curve(NamedTuple):
    """Closeness scores for each number of members, and their standard deviations over sets."""

    closeness: FloatArray
    deviation: FloatArray


# By images, distance and g the curves of each approximation.
Found = dict[tuple[str, str, str], dict[str, Curve]]


def difference_scores(approximate: FloatArray, exact: FloatArray) -> FloatArray:
    """The mean (p,) over members of |d_hat - d| / d of each object, for distances (p, n) [E eq. 31].

    Members at distance 0 are left out: the score has no meaning there. An object with no other has the score 0.
    """
    apart = exact > 0
    errors = np.divide(np.abs(approximate - exact), exact, out=np.zeros(exact.shape), where=apart)
    return np.asarray(errors.sum(axis=1) / np.maximum(1, np.count_nonzero(apart, axis=1)))


def closeness_score(differences: Sequence[FloatArray]) -> float:
    """1 minus the mean over sets of their objects' mean difference scores [E eq. 32]."""
    return 1 - float(np.mean([scores.mean() for scores in differences]))


def left_out_of(apart: FloatArray, i: int, kernel: str) -> tuple[LeftOut, FloatArray]:
    """The i-th object taken out of its set, and its distances (1, n) to the others, from those between all."""
    others = np.delete(np.arange(len(apart)), i)
    return KERNELS[kernel](apart[np.ix_(others, others)], apart[i, others]), apart[i : i + 1, others]


def scores(apart: FloatArray, power: int, kernel: str, sizes: Sequence[int], step: int = 1) -> dict[str, FloatArray]:
    """Difference scores (sizes, n) by each approximation, of every image of a set or every `step`-th of them."""
    rows = range(0, len(apart), step)
    found = {name: np.empty((len(sizes), len(rows))) for name in APPROXIMATIONS}
    for column, i in enumerate(rows):
        left_out, exact = left_out_of(apart, i, kernel)
        chosen = left_out.chosen(max(sizes))
        for name, approximation in APPROXIMATIONS.items():
            for row, m in enumerate(sizes):
                squared = approximation(left_out, chosen[:m])
                found[name][row, column] = difference_scores(squared ** (power / 2), exact**power)[0]
    return found


def curves(pictures: Pictures, target: Target, kernel: str) -> dict[str, Curve]:
    """By each approximation, over all sets of images."""
    found = [
        scores(target.distances(images), target.power, kernel, pictures.sizes, pictures.step)
        for images in pictures.sets
    ]
    return {name: _curve([differences[name] for differences in found]) for name in APPROXIMATIONS}


def _curve(differences: Sequence[FloatArray]) -> Curve:
    """Of difference scores (sizes, n) of each set."""
    closeness = [closeness_score(at_size) for at_size in zip(*differences, strict=True)]
    return Curve(np.array(closeness), np.std([scores.mean(axis=1) for scores in differences], axis=0))


def captured_trace(gram: FloatArray, subset: Sequence[int] | IntArray) -> float:
    """trace(P_RQ K), with P_RQ the projector on the rows of K_RQ; the larger the better [E eq. 24]."""
    _, sizes, rows = np.linalg.svd(gram[np.asarray(subset)], full_matrices=False)
    basis = rows[sizes > len(gram) * EPSILON * sizes[0]]
    return float(np.sum(basis * (basis @ gram)))


def best_subset(gram: FloatArray, n_chosen: int) -> IntArray:
    """Of all subsets of a size the one that captures most of the trace, as the paper chooses."""
    return np.array(max(combinations(range(len(gram)), n_chosen), key=lambda subset: captured_trace(gram, subset)))


def best_curve(pictures: Pictures) -> Curve:
    """Of semi-least squares of Hamming's distance with a constant g, if the best of all subsets is taken."""
    found = []
    for images in pictures.sets:
        apart = hamming(images)
        found.append(np.array([[_best_score(apart, i, m) for i in range(len(apart))] for m in pictures.sizes]))
    return _curve(found)


def _best_score(apart: FloatArray, i: int, n_chosen: int) -> float:
    left_out, exact = left_out_of(apart, i, "constant")
    squared = by_semi_least_squares(left_out, best_subset(left_out.gram, n_chosen))
    return float(difference_scores(np.sqrt(squared), exact)[0])


def data_sets() -> dict[str, Pictures]:
    """Stand-ins for the Sheffield faces (20 persons, 28 images each on average) and for PIE (20 persons, 78 each)."""
    return {
        "Olivetti": persons("olivetti_64x64"),
        "ORL": persons("orl_32x32"),
        f"Frey, {FEW_IMAGES}": frames(FEW_IMAGES, FEW_SIZES),
        f"Frey, {MANY_IMAGES}": frames(MANY_IMAGES, MANY_SIZES, STEP),
        "synthetic faces": face_groups(),
    }


def persons(name: str) -> Pictures:
    """Ten images of each of some persons."""
    data = arrays(name)
    sets = [data["X"][data["y"] == person].astype(np.float64) for person in np.unique(data["y"])[:N_PERSONS]]
    return Pictures(sets, PERSON_SIZES)


def frames(n_images: int, sizes: Sequence[int], step: int = 1) -> Pictures:
    """Sets of that many random frames of a film of one face, as many sets as the paper has persons."""
    film = arrays("frey_faces")["X"].astype(np.float64)
    drawn = np.random.default_rng(0).permutation(len(film))[: N_PERSONS * n_images]
    return Pictures(list(film[drawn.reshape(N_PERSONS, n_images)]), sizes, step)


def face_groups() -> Pictures:
    """The synthetic faces in random groups of 77 or 78."""
    faces = arrays("isomap_faces_32x32")["X"].astype(np.float64)
    groups = np.array_split(np.random.default_rng(0).permutation(len(faces)), N_GROUPS)
    return Pictures([faces[group] for group in groups], MANY_SIZES, STEP)


def main() -> None:
    data = data_sets()
    found: Found = {}
    for name, target, kernel in product(data, TARGETS, KERNELS):
        found[name, target, kernel] = curves(data[name], TARGETS[target], kernel)
    print("Closeness, and its standard deviation over sets, of Hamming's distance with a constant g [E fig. 4, 5]\n")
    print("| images | method | " + " | ".join(f"m = {m}" for m in SHOWN_SIZES) + " |")
    print("|---" * (len(SHOWN_SIZES) + 2) + "|")
    for name, pictures in data.items():
        for approximation, curve in found[name, *PAPER].items():
            _print_curve(f"{name} | {approximation}", curve, pictures.sizes)
    _print_curve("Olivetti | semi-least squares, best of all subsets", best_curve(data["Olivetti"]), PERSON_SIZES)
    _print_all(found, data)
    if len(sys.argv) > 1:
        draw({name: found[name, *PAPER] for name in data}, data, Path(sys.argv[1]))


def _print_curve(label: str, curve: Curve, sizes: Sequence[int]) -> None:
    cells = {
        m: f"{close:.3f} ± {deviation:.3f}" if close > 0 else "below 0"
        for m, close, deviation in zip(sizes, curve.closeness, curve.deviation, strict=True)
    }
    print(f"| {label} | " + " | ".join(cells.get(m, "") for m in SHOWN_SIZES) + " |", flush=True)


def _print_all(found: Found, data: dict[str, Pictures]) -> None:
    """With every distance and g, at one number of members and at the largest."""
    names = " | ".join(APPROXIMATIONS)
    print(f"\n| images | distance | g | m = {COMPARED}: {names} | largest m | {names} |")
    print("|---" * (4 + 2 * len(APPROXIMATIONS)) + "|")
    for (name, target, kernel), by_method in found.items():
        sizes = data[name].sizes
        at_one, at_most = (
            " | ".join(f"{curve.closeness[place]:.3f}" for curve in by_method.values())
            for place in (sizes.index(COMPARED), len(sizes) - 1)
        )
        print(f"| {name} | {target} | {kernel} | {at_one} | {sizes[-1]} | {at_most} |")


def draw(found: dict[str, dict[str, Curve]], data: dict[str, Pictures], path: Path) -> None:
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    grid = figure.subplots(2, 3, sharey=True)
    for axes, (name, by_method) in zip(grid.flat, found.items(), strict=False):
        pictures = data[name]
        counts = sorted({len(images) for images in pictures.sets})
        _draw_curves(axes, by_method, pictures.sizes)
        n_images = " or ".join(map(str, counts))
        axes.set_title(f"{name.split(',')[0]}: {len(pictures.sets)} sets of {n_images}", fontsize="medium")
        axes.set_xlabel("members compared with, m")
    for axes in grid[:, 0]:
        axes.set_ylabel("closeness of the Hamming distance")
    spare = grid.flat[len(found)]
    spare.set_axis_off()
    spare.legend(*grid[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
    save(figure, path)


def _draw_curves(axes: Axes, found: dict[str, Curve], sizes: Sequence[int]) -> None:
    """With bars of a standard deviation over sets, each method's a little beside the others'; none from 0 on down."""
    for place, (name, curve) in enumerate(found.items()):
        beside = np.array(sizes) + (place - 1) * 0.01 * sizes[-1]
        shown = np.where(curve.closeness > 0, curve.closeness, np.nan)
        axes.errorbar(beside, shown, curve.deviation, fmt="o-", markersize=3, capsize=2, linewidth=1.1, label=name)
    axes.set_ylim(0, 1.03)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):
        main()
