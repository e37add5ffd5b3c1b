"""How comparisons of rows with landmarks are cut into pieces of work: integers only.

What a call of the user's function takes is not known, microseconds or minutes. So even few comparisons make pieces
enough for a cluster to share and for a crash to lose little, while of many comparisons the pieces are larger, or
keeping track of them would take longer than they do.
"""

from dataclasses import dataclass
from functools import cached_property

LANDMARKS_EACH = 16
FEWEST_ROWS, USUAL_ROWS, MOST_ROWS = 8, 256, 65_536
# Pieces that there are at least and at most, as far as the rows of each may go down and up for it.
ENOUGH_PIECES, MOST_PIECES = 64, 10_000


@dataclass(frozen=True)
class Comparisons:
    """Every row with every landmark, in pieces of `rows_each` rows and a batch of landmarks; the last of either may be
    smaller. Pieces of the same rows follow each other."""

    n_rows: int
    n_landmarks: int

    @property
    def n_batches(self) -> int:
        return -(-self.n_landmarks // LANDMARKS_EACH)

    @cached_property
    def rows_each(self) -> int:
        rows = USUAL_ROWS
        while rows > FEWEST_ROWS and self._pieces(rows) < ENOUGH_PIECES:
            rows //= 2
        while rows < MOST_ROWS and self._pieces(rows) > MOST_PIECES:
            rows *= 2
        return rows

    @property
    def count(self) -> int:
        return self._pieces(self.rows_each)

    def rows(self, piece: int) -> range:
        """The rows of one piece."""
        first = piece // self.n_batches * self.rows_each
        return range(first, min(first + self.rows_each, self.n_rows))

    def landmarks(self, piece: int) -> slice:
        """The places of its landmarks among all of them."""
        first = piece % self.n_batches * LANDMARKS_EACH
        return slice(first, min(first + LANDMARKS_EACH, self.n_landmarks))

    def _pieces(self, rows_each: int) -> int:
        return self.n_batches * -(-self.n_rows // rows_each)
