"""Stage 8, embed: coordinates and trust columns of every row, one pass over the rows to the landmarks.

A partition is a group of nodes. Its results are expanded to the source rows that the nodes stand for and written sorted
by source row, ready for the exchange back into the user's order. On the way the pass counts the distributions of the
trust columns and keeps a sample of nodes for the quality figures.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pipeline.numerics.extension.moments import MomentSums
from pipeline.numerics.extension.restricted import DiagonalWeight, resolved_weight
from pipeline.numerics.mds import LandmarkModel
from pipeline.numerics.sketch import Sketch, merged, quantiles, sketch
from pipeline.numerics.trust import TRUST, Placed, among_others, placed_by_moments, stacked, trust_columns
from pipeline.partitions import RowPartitions
from pipeline.stages.connected import kept_nodes
from pipeline.stages.exchange import write_in_row_order
from pipeline.stages.graph import group_bounds
from pipeline.stages.model import load_model
from pipeline.stages.rows import row_batches
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Entries of the distances kept of the sampled nodes: 16 MB.
SAMPLE_ENTRIES = 4_000_000
MOST_SAMPLED = 4000
SHARES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
SAMPLE = ("nodes", "to_landmarks", "projection", "restricted")


@dataclass(frozen=True)
class Embed(Stage):
    """Projection, restricted reconstruction and trust columns, in the user's units.

    Columns of `values` are the projection (d), the restricted reconstruction (d), then those of TRUST.
    """

    ordered: Outcome
    neighbors: Outcome
    graph: Outcome
    components: Outcome
    rows: Outcome
    model: Outcome
    partitions: RowPartitions
    exponent: int
    diagonal_weight: DiagonalWeight
    seed: int
    name = "embed"
    version = 3

    def settings(self) -> Json:
        return {
            "diagonal_weight": self.diagonal_weight,
            "exponent": self.exponent,
            "rows_each": self.partitions.rows_each,
            "seed": self.seed,
        }

    def inputs(self) -> list[str]:
        return [self.neighbors.ledger.digest, self.rows.ledger.digest, self.model.ledger.digest]

    def n_partitions(self) -> int:
        return len(self.ordered.figures["nodes_each"])

    def run_partition(self, ledger: StageLedger, partition: int) -> tuple[Json, list[str]]:
        first, last = (int(bound) for bound in group_bounds(self.ordered)[partition : partition + 2])
        node_of = self.ordered.ledger.part("node_of", partition).read()
        counts = np.bincount(node_of, minlength=last - first)
        kept = self._kept[first:last]
        result, sample = self._of_nodes(first, last)
        trust = self._trust(result, partition, counts)
        coordinates = [np.ldexp(part, self.exponent) for part in (result.projection, result.restricted)]
        nodes = {
            "values": np.hstack([*coordinates, np.where(kept[:, None], trust, np.nan)]),
            "ambiguous": result.ambiguous,
            "component": self.graph.ledger.read("components").read(first, last),
        }
        names = write_in_row_order(ledger, partition, self.ordered, self.partitions, nodes)
        others = {f"sample_{name}": part for name, part in zip(SAMPLE, sample, strict=True)}
        others["sketches"] = _packed([sketch(column, counts[kept]) for column in trust[kept].T])
        return {"n_embedded": int(counts[kept].sum())}, names + ledger.write_parts(partition, others)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups = sorted(figures)
        arrays = {name: _gathered(ledger, f"sample_{name}", groups) for name in SAMPLE}
        arrays["counts"] = np.stack([ledger.part("counts", group).read() for group in groups])
        table = _gathered(ledger, "sketches", groups)
        sketches = {column: unpacked(table, column) for column in TRUST}
        arrays["sketches"] = _packed(list(sketches.values()))
        found = {column: _named_quantiles(one) for column, one in sketches.items()}
        for name, array in arrays.items():
            ledger.write(name, array)
        n_embedded = sum(entry["n_embedded"] for entry in figures.values())
        report = {"n_embedded": n_embedded, "weight": self._weight, "exponent": self.exponent}
        return {**report, "n_sampled": len(self._sampled), "quantiles": found}, list(arrays)

    @cached_property
    def _model(self) -> LandmarkModel:
        return load_model(self.model.ledger)

    @cached_property
    def _row_batches(self) -> list[RowArray]:
        return row_batches(self.rows)

    @cached_property
    def _kept(self) -> BoolArray:
        return kept_nodes(self.graph, self.components)

    @cached_property
    def _sampled(self) -> IntArray:
        """Nodes, rising, kept for the quality figures: drawn by number, so that groups do not matter."""
        kept = np.flatnonzero(self._kept)
        size = min(len(kept), MOST_SAMPLED, max(100, SAMPLE_ENTRIES // self._model.n_landmarks))
        return np.sort(np.random.default_rng(self.seed).choice(kept, size, replace=False))

    @property
    def _weight(self) -> float:
        return resolved_weight(self._model, self.diagonal_weight)

    def _of_nodes(self, first: int, last: int) -> tuple[Placed, list[AnyArray]]:
        """Both answers for a range of nodes; and of the sampled ones among them number, distances and answers."""
        sampled = self._sampled[slice(*np.searchsorted(self._sampled, [first, last]))]
        parts, distances = [], [np.empty((0, self._model.n_landmarks), dtype=np.float32)]
        for start, stop in chunk_ranges(first, last, self.rows.figures["nodes_per_chunk"]):
            chosen = sampled[(sampled >= start) & (sampled < stop)] - start
            part, lengths = self._placed(start, stop, chosen)
            parts.append(part)
            distances.append(lengths)
        whole = stacked(parts, self._model)
        answers = [whole.projection[sampled - first], whole.restricted[sampled - first]]
        return whole, [sampled, np.concatenate(distances), *answers]

    def _placed(self, start: int, stop: int, sampled: IntArray) -> tuple[Placed, AnyArray]:
        """Both answers for a range of nodes, of which only the kept ones have finite distances; and the distances
        (s, m) of some of them, given by their places in the range."""
        kept = self._kept[start:stop]
        sums, distances = MomentSums(self._model, int(kept.sum())), []
        for batch in self._row_batches:
            lengths = batch.read(start, stop)
            distances.append(lengths[sampled])
            sums.add(lengths if kept.all() else lengths[kept])
        part = placed_by_moments(self._model, sums.moments(), self._weight)
        return among_others(part, kept, self._model), np.concatenate(distances, axis=1)

    def _trust(self, result: Placed, partition: int, counts: IntArray) -> FloatArray:
        """The trust columns (n, 4) of a group's nodes, in the user's units."""
        # To the nearest other row, which is at no distance where several are the same.
        distances = self.neighbors.ledger.part("distances", partition).read()[:, 0]
        return trust_columns(result, np.where(counts > 1, 0.0, distances), self.exponent)


def chunk_ranges(first: int, last: int, chunk: int) -> list[tuple[int, int]]:
    """Nodes `first` up to `last`, cut where the stored chunks of their distances end."""
    edges = range((first // chunk + 1) * chunk, last, chunk)
    return list(pairwise([first, *edges, last]))


def _packed(sketches: list[Sketch]) -> IntArray:
    """Sketches of several columns as one table: column, bin, count."""
    tables = [np.column_stack([np.full(len(one.bins), i), *one]) for i, one in enumerate(sketches)]
    return np.concatenate(tables).astype(np.int64)


def unpacked(table: IntArray, column: str) -> Sketch:
    """The sketch of one trust column, from tables of `_packed` on top of each other."""
    mine = table[table[:, 0] == TRUST.index(column)]
    return merged([Sketch(mine[:, 1], mine[:, 2])])


def _named_quantiles(of: Sketch) -> Json:
    return dict(zip(map(str, SHARES), quantiles(of, np.array(SHARES)).tolist(), strict=True))


def _gathered(ledger: StageLedger, name: str, groups: list[int]) -> AnyArray:
    return np.concatenate([ledger.part(name, group).read() for group in groups])
