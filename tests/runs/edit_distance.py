"""Functions of two objects, as a user would name them for a run."""


def levenshtein(a, b):
    """Insertions, deletions and substitutions that make one text the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return row[-1]


def shared_letters(a, b):
    """An inner product: of how often each letter occurs."""
    return sum(a.count(letter) * b.count(letter) for letter in "ACGT")


def apart(a, b):
    """The Euclidean distance of two rows of numbers."""
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


def lopsided(a, b):
    """Not a distance: longer texts are farther from shorter ones than these from them."""
    return abs(len(a) - len(b)) * (2 if len(a) > len(b) else 1)
