"""Functions of two objects, as a user would name them for a run."""

from collections.abc import Sequence


def levenshtein(a: str, b: str) -> int:
    """Insertions, deletions and substitutions that make one text the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return row[-1]


def shared_letters(a: str, b: str) -> int:
    """An inner product: of how often each letter occurs."""
    return sum(a.count(letter) * b.count(letter) for letter in "ACGT")


def apart(a: Sequence[float], b: Sequence[float]) -> float:
    """The distance of two rows of three numbers along the axes."""
    return float(abs(a[0] - b[0]) + abs(a[1] - b[1]) + abs(a[2] - b[2]))
