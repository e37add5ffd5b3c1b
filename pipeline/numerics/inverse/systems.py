"""The interpolant of one neighborhood: its system factored once, then the weights of its nodes for any query.

The interpolant of [M eq. 8, 14] at a query y is a combination of the nodes' rows, s(y) = sum_j w_j(y) x_j, where w
solves one system with one right side,

    [Phi P] [w]   [phi(y)]
    [P'  0] [c] = [p(y)  ],      Phi_ij = g(|y_i - y_j|),  phi_j(y) = g(|y - y_j|),  P_jt = p_t(y_j).

| symbol | variable        | shape  |                                                                 |
|--------|-----------------|--------|-----------------------------------------------------------------|
| y_j    | nodes.positions | (d, k) | centered, in units of the neighborhood's size                   |
| P      | monomials       | (c, k) |                                                                 |
| Q      | basis           | (r, k) | columns of P made orthonormal, without dependent ones           |
| Pi     | I - QQ'         | (k, k) | the projector onto what is orthogonal to all polynomials        |
| M      | matrix          | (k, k) | Pi Phi Pi + tau QQ', positive definite                          |
| S      | images          | (r, k) | Phi Q - Q (Q' Phi Q + tau I) / 2, so that M = Phi - QS' - SQ'   |
| z      | fixed           | (r,)   | Q'w: the orthonormal polynomials at y                           |

w = Qz + M^-1 Pi (phi(y) - Phi Qz). tau is the mean eigenvalue of the other part, so it does not affect M's condition.
If polynomials alone fit the nodes (r = k), M = tau I. Special cases:

- Coinciding nodes are one node, whose weight is shared equally: the mean of their rows is interpolated.
- Polynomials that vanish or depend on lower ones at all nodes are left out. Coordinates are first rotated to the plane
  that nodes lie in, so they get a linear part along any plane and none across it.
- If M has no factor in double precision, the least sufficient power of ten of its diagonal is added: rows of nearly
  coinciding nodes are smoothed. (Where they only nearly coincide and rows contradict each other, the exact interpolant
  swings far, which large weights show.)
- Distances among other nodes vanish beside those of an outlier, and subtracting polynomials from Phi loses them. If M's
  condition exceeds 1e12 or it has no factor, the whole system is also solved by elimination, which keeps them at
  several times the cost; of the two solutions the one with better weights at nodes is used.
"""

import numpy as np

from pipeline.numerics.compiled import compiled
from pipeline.numerics.inverse.algebra import (
    add_rows,
    add_rows_to_both,
    has_factor,
    inner_product,
    is_eliminated,
    mirror,
    norm_of,
    norm_of_inverse,
    place_of_largest,
    solve,
    solve_eliminated,
)
from pipeline.numerics.inverse.neighborhood import (
    COINCIDING,
    GAUSSIAN,
    NOBODY,
    SHEPARD,
    Facts,
    Nodes,
    Radial,
    Room,
    Terms,
    apply_radial,
    fill_distance,
    fill_squares,
    fill_squares_from,
    gather,
    least_of,
    merge,
    span_directions,
)
from pipeline.types import AnyArray

FLAGS = {"merged": 1, "not_unisolvent": 2, "ill_conditioned": 4, "regularized": 8, "dropped": 16, "undefined": 32}
MERGED, NOT_UNISOLVENT, ILL_CONDITIONED, REGULARIZED, DROPPED, UNDEFINED = FLAGS.values()
# Relative to a polynomial's size at the nodes: the rounding of one that depends on others.
DEPENDENT = 1e-10
# Above this condition weights have fewer than four right digits.
HIGHEST_CONDITION = 1e12
# Rounding above this share of the weights or rows leaves fewer than four right digits.
MOST_ROUNDING = 1e-4
EPSILON = 2.0**-52
# Nodes, those with the nearest others, at which the two solutions are compared; the largest error there for the whole
# system to be used, and to be used without a flag.
PROBED, NEARLY_RIGHT, RIGHT = 8, 1e-6, 1e-8
# The first share of the diagonal added to a matrix without a factor, and how often it may grow tenfold.
FIRST_ADDED, MOST_TRIES = 1e-13, 14


@compiled
def prepare(points: AnyArray, places: AnyArray, radial: Radial, terms: Terms, length: float, room: Room) -> Facts:
    """Factor the system of the nodes that `places` (k,) names, rows of points (n, d) or NOBODY. The kernel's length is
    `length` if that is above 0, else the neighborhood's own fill distance."""
    n, unit = gather(points, places, room.nodes)
    if n == 0:
        return Facts(0, 0, 1.0, 0.0, 1.0, np.nan, UNDEFINED, 0.0, False)
    flags = 0
    fill_squares(room.nodes, n, room.matrix)
    if least_of(room.nodes.nearest[:n]) <= COINCIDING * COINCIDING:
        n, flags = merge(room.nodes, n, room.matrix), MERGED
        fill_squares(room.nodes, n, room.matrix)
    own = fill_distance(room.nodes, n)
    # For a single node everything is near.
    used = length / unit if length > 0.0 else (own if own > 0.0 else np.inf)
    if radial.kind == SHEPARD:
        return Facts(n, 0, unit, own, used, 1.0, flags, 0.0, False)
    n_terms = _fit_polynomials(terms, room, n)
    size = _fill_matrix(radial, used, room, n, n_terms)
    estimate, found = _factored(size, room, n)
    flags |= found | (NOT_UNISOLVENT if n_terms < len(terms.parents) else 0)
    # If polynomials alone fit the nodes, the weights do not depend on the right side.
    rounding = EPSILON * estimate / size if n_terms < n else 0.0
    facts = Facts(n, n_terms, unit, own, used, estimate, flags, rounding, False)
    return _better(radial, terms, facts, room) if found else facts


@compiled
def _fit_polynomials(terms: Terms, room: Room, n: int) -> int:
    """Fill in Q: each monomial made orthonormal to those before it; return how many are independent."""
    span_directions(room.nodes, n, room.directions, room.turned, room.spare[:n])
    for a in range(len(room.directions)):
        room.turned[a, :n] = 0.0
        add_rows(room.turned[a, :n], 1.0, room.directions[a], room.nodes.positions, 0)
    found = 0
    for t in range(len(terms.parents)):
        monomial, parent, coordinate = room.monomials[t, :n], terms.parents[t], terms.coordinates[t]
        for j in range(n):
            monomial[j] = 1.0 if parent == NOBODY else room.monomials[parent, j] * room.turned[coordinate, j]
        if found < n and _is_new(monomial, found, room):
            room.sources[found] = t
            found += 1
    return found


@compiled
def _is_new(monomial: AnyArray, found: int, room: Room) -> bool:
    """Append a polynomial, made orthonormal to those found, unless it depends on them. Twice, as the first pass leaves
    rounding of what was subtracted."""
    polynomial, recurrence = room.basis[found, : len(monomial)], room.triangle[found]
    for j in range(len(monomial)):
        polynomial[j] = monomial[j]
    recurrence[: found + 1] = 0.0
    for _ in range(2):
        for s in range(found):
            known = room.basis[s, : len(monomial)]
            along = inner_product(known, polynomial)
            recurrence[s] += along
            for j in range(len(polynomial)):
                polynomial[j] -= along * known[j]
    size = np.sqrt(inner_product(polynomial, polynomial))
    if size <= DEPENDENT * np.sqrt(inner_product(monomial, monomial)):
        return False
    recurrence[found] = size
    for j in range(len(polynomial)):
        polynomial[j] /= size
    return True


@compiled
def _fill_matrix(radial: Radial, length: float, room: Room, n: int, r: int) -> float:
    """Replace the squared distances by M, upper half; return the norm of Phi."""
    matrix, basis, images = room.matrix, room.basis, room.images
    for i in range(n):
        apply_radial(radial, length, matrix[i, i:n])
    mirror(matrix, n)
    size = norm_of(matrix, room.spare[:n])
    _multiply(basis, r, matrix, n, images)
    trace = float(n) if radial.kind == GAUSSIAN else 0.0
    for s in range(r):
        for t in range(r):
            room.crossed[s, t] = inner_product(basis[t, :n], images[s, :n])
        trace -= room.crossed[s, s]
    tau = trace / (n - r) if n > r and trace > 0.0 else 1.0
    for s in range(r):
        room.crossed[s, s] += tau
        add_rows(images[s, :n], -0.5, room.crossed[s, :r], basis, 0)
    _subtract_products(basis, r, images, n, matrix)
    _subtract_products(images, r, basis, n, matrix)
    return size


@compiled
def _multiply(basis: AnyArray, r: int, matrix: AnyArray, n: int, images: AnyArray) -> None:
    """images (r, n) = basis (r, n) times matrix (n, n), two rows at a time."""
    for s in range(r):
        images[s, :n] = 0.0
    for s in range(0, r - 1, 2):
        add_rows_to_both(images[s, :n], images[s + 1, :n], 1.0, basis[s, :n], basis[s + 1, :n], matrix, 0)
    if r % 2 == 1:
        add_rows(images[r - 1, :n], 1.0, basis[r - 1, :n], matrix, 0)


@compiled
def _subtract_products(a: AnyArray, r: int, b: AnyArray, n: int, matrix: AnyArray) -> None:
    """Subtract a'b, of rows (r, n) each, from the upper half of a matrix, two rows at a time."""
    for i in range(0, n - 1, 2):
        add_rows_to_both(matrix[i, i:n], matrix[i + 1, i:n], -1.0, a[:r, i], a[:r, i + 1], b, i)
    if n % 2 == 1:
        add_rows(matrix[n - 1, n - 1 : n], -1.0, a[:r, n - 1], b, n - 1)


@compiled
def _factored(size: float, room: Room, n: int) -> tuple[float, int]:
    """The condition once M has a factor, and flags. It is |Phi| |M^-1|: rounding enters at the size of Phi, before
    polynomials are subtracted."""
    added, largest = 0.0, 0.0
    for j in range(n):
        largest = max(largest, room.matrix[j, j])
    for _ in range(MOST_TRIES):
        if has_factor(room.matrix, n, added, room.factor):
            estimate = max(1.0, size * norm_of_inverse(room.factor, room.weights[:n], room.spare[:n]))
            flags = (REGULARIZED if added > 0.0 else 0) | (ILL_CONDITIONED if estimate > HIGHEST_CONDITION else 0)
            return estimate, flags
        added = max(10.0 * added, FIRST_ADDED * largest)
    return np.nan, UNDEFINED


@compiled
def _better(radial: Radial, terms: Terms, facts: Facts, room: Room) -> Facts:
    """The facts of an ill-conditioned system, or of the whole one if that is right at nodes, and more so."""
    n, r = facts.n_nodes, facts.n_terms
    _fill_whole(radial, facts.length, room, n, r)
    if not is_eliminated(room.whole[: n + r, : n + r], room.whole_rows[: n + r]):
        return facts
    whole = Facts(n, r, facts.unit, facts.fill_distance, facts.length, facts.condition, 0, 0.0, True)
    nearest_first = np.argsort(room.nodes.nearest[:n], kind="mergesort")
    error, present, growth = 0.0, 0.0, 0.0
    for node in nearest_first[:PROBED]:
        error = max(error, _error_at(node, radial, terms, whole, room))
        present = max(present, _error_at(node, radial, terms, facts, room))
        growth = max(growth, _growth_of(node, n + r, room))
    # NaN is no improvement, and any number improves on it.
    if not error <= NEARLY_RIGHT or error >= present:
        return facts
    flags = facts.flags & (MERGED | NOT_UNISOLVENT) | (ILL_CONDITIONED if error > RIGHT else 0)
    rounding = EPSILON * growth
    return Facts(n, r, facts.unit, facts.fill_distance, facts.length, facts.condition, flags, rounding, True)


@compiled
def _fill_whole(radial: Radial, length: float, room: Room, n: int, r: int) -> None:
    """[Phi P; P' 0], P of monomials."""
    whole = room.whole
    fill_squares(room.nodes, n, whole)
    for i in range(n):
        apply_radial(radial, length, whole[i, i:n])
    mirror(whole, n)
    whole[n : n + r, n : n + r] = 0.0
    for s in range(r):
        whole[:n, n + s] = whole[n + s, :n] = room.monomials[room.sources[s], :n]


@compiled
def _error_at(node: int, radial: Radial, terms: Terms, facts: Facts, room: Room) -> float:
    """The sum of absolute deviations of a system's weights at one of its nodes from 1 there and 0 elsewhere."""
    weights, place = room.weights[: facts.n_nodes], room.nodes.positions[:, node].copy()
    fill_squares_from(place, room.nodes, 0, weights)
    _weigh_nodes(place, radial, terms, facts, room)
    weights[node] -= 1.0
    error = 0.0
    for weight in weights:
        error += abs(weight)
    return error


@compiled
def _growth_of(node: int, n: int, room: Room) -> float:
    """The size of the whole system's solution for a right side that is 1 at a node."""
    right_side = np.zeros(n)
    right_side[node] = 1.0
    solution = solve_eliminated(room.whole[:n, :n], room.whole_rows[:n], right_side)
    return float(abs(solution[place_of_largest(solution)]))


@compiled
def _weigh_nodes(place: AnyArray, radial: Radial, terms: Terms, facts: Facts, room: Room) -> float:
    """Replace squared distances from a place (d,) by the nodes' weights; return the rounding in them."""
    n, r, weights = facts.n_nodes, facts.n_terms, room.weights[: facts.n_nodes]
    apply_radial(radial, facts.length, weights)
    # In the whole system entries round at their own size, even beside that of a far node.
    size = np.median(np.abs(weights)) if facts.is_whole else abs(weights[place_of_largest(weights)])
    rounding = facts.rounding * float(size)
    at_place = _monomials_at(place, terms, room)
    if facts.is_whole:
        whole, rows = room.whole[: n + r, : n + r], room.whole_rows[: n + r]
        right_side = np.concatenate((weights, at_place[room.sources[:r]]))
        weights[:] = solve_eliminated(whole, rows, right_side)[:n]
    else:
        _solve_for(at_place, r, n, room)
    return rounding


@compiled
def weigh(
    query: AnyArray, radial: Radial, terms: Terms, facts: Facts, room: Room, weights: AnyArray
) -> tuple[float, float, bool]:
    """The weights (k,) of a prepared neighborhood's places for a query (d,); return its distance from the nearest node,
    the sum of absolute weights, and whether rounding leaves few digits. Far from all nodes most of the right side is
    polynomial; what is left after subtracting that is rounding."""
    nodes, right_side = room.nodes, room.weights[: facts.n_nodes]
    place = (query - nodes.center) / facts.unit
    fill_squares_from(place, nodes, 0, right_side)
    nearest, rounding = least_of(right_side), 0.0
    if radial.kind == SHEPARD:
        _weigh_by_nearness(radial, facts.length, nearest, nodes, right_side)
    else:
        rounding = _weigh_nodes(place, radial, terms, facts, room)
    amplification = 0.0
    for j in range(len(weights)):
        node = nodes.node_of[j]
        weights[j] = right_side[node] / nodes.counts[node] if node != NOBODY else 0.0
        amplification += abs(weights[j])
    is_rounded = max(rounding, EPSILON * amplification * amplification) > MOST_ROUNDING * amplification
    return float(np.sqrt(nearest) * facts.unit), amplification, is_rounded


@compiled
def _weigh_by_nearness(radial: Radial, length: float, nearest: float, nodes: Nodes, squares: AnyArray) -> None:
    """Shepard's weights [M eq. 17], from squares above the least: far from all nodes they would be 0/0."""
    squares -= nearest
    apply_radial(radial, length, squares)
    squares *= nodes.counts[: len(squares)]
    squares /= squares.sum()


@compiled
def _monomials_at(place: AnyArray, terms: Terms, room: Room) -> AnyArray:
    """The monomials (c,) at a place (d,), in the coordinates of the directions in which the nodes spread."""
    values = np.ones(len(terms.parents))
    for t in range(1, len(values)):
        along = inner_product(room.directions[terms.coordinates[t]], place)
        values[t] = values[terms.parents[t]] * along
    return values


@compiled
def _solve_for(monomials: AnyArray, r: int, n: int, room: Room) -> None:
    """Replace phi(y) by w. Its polynomial part is set last, so polynomials are reproduced up to rounding."""
    weights, fixed = room.weights[:n], np.empty(r)
    # The orthonormal polynomials at the query, by the steps that made them at the nodes.
    for s in range(r):
        known = inner_product(room.triangle[s, :s], fixed[:s])
        fixed[s] = (monomials[room.sources[s]] - known) / room.triangle[s, s]
    add_rows(weights, -1.0, fixed, room.images, 0)
    _set_parts(weights, 0.0, fixed, room.basis)
    solve(room.factor, weights)
    _set_parts(weights, 1.0, fixed, room.basis)


@compiled
def _set_parts(vector: AnyArray, factor: float, parts: AnyArray, basis: AnyArray) -> None:
    """Give a vector (n,) the inner products factor * parts (r,) with the rows of the basis."""
    for s in range(len(parts)):
        row = basis[s, : len(vector)]
        missing = factor * parts[s] - inner_product(row, vector)
        for j in range(len(vector)):
            vector[j] += missing * row[j]
