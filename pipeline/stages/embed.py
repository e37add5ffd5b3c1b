"""Stage 8, embed: coordinates and trust columns of every row, one pass over the rows to the landmarks.

A partition is a group of nodes. Its results are expanded to the source rows that the nodes stand for and written sorted
by source row, ready for the exchange back into the user's order. On the way the pass counts the distributions of the
trust columns and keeps a sample of nodes for the quality figures.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pipeline.numerics.extension.placement import Answer, Answers
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.numerics.statistics.distributions import Sketch, merged, quantiles, sketch
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.exchange import write_in_row_order
from pipeline.stages.graph.connected import kept_nodes
from pipeline.stages.graph.graph import group_bounds
from pipeline.stages.graph.ragged import nearest_of_nodes
from pipeline.stages.graph.rows import row_batches
from pipeline.stages.model import load_answers
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, BoolArray, FloatArray, IntArray, Json

# Entries of the distances kept of the sampled nodes: 16 MB.
SAMPLE_ENTRIES = 4_000_000
MOST_SAMPLED = 4000
SHARES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
# Of every node that is kept for the figures of quality, besides its answers.
SAMPLE = ("nodes", "to_landmarks")
NEAREST = "nearest"


@dataclass(frozen=True)
class Embed(Stage):
    """All that the model says of every row, in the user's units.

    Columns of `values` are the answers (d each: the projection and the restricted reconstruction, or the one that the
    method has), then those of trust, the distance to the nearest other row last.
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
        coordinates = np.ldexp(result.coordinates, self.exponent)
        nodes = {
            "values": np.hstack([coordinates, np.where(kept[:, None], trust, np.nan)]),
            "ambiguous": result.ambiguous,
            "component": self.graph.ledger.read("components").read(first, last),
        }
        names = write_in_row_order(ledger, partition, self.ordered, self.partitions, nodes)
        others = {f"sample_{name}": part for name, part in sample.items()}
        others["sketches"] = packed([sketch(column, counts[kept]) for column in trust[kept].T])
        return {"n_embedded": int(counts[kept].sum())}, names + ledger.write_parts(partition, others)

    def finish(self, ledger: StageLedger, figures: dict[int, Json]) -> tuple[Json, list[str]]:
        groups = sorted(figures)
        names = (*SAMPLE, *self._answers.coordinates)
        arrays = {name: gathered(ledger, f"sample_{name}", groups) for name in names}
        arrays["counts"] = np.stack([ledger.part("counts", group).read() for group in groups])
        arrays["sketches"], found = merged_sketches(gathered(ledger, "sketches", groups), self._columns)
        for name, array in arrays.items():
            ledger.write(name, array)
        n_embedded = sum(entry["n_embedded"] for entry in figures.values())
        report = {"n_embedded": n_embedded, "weight": self._answers.weight, "exponent": self.exponent}
        report |= {"columns": list(self._columns), "coordinates": list(self._answers.coordinates)}
        return {**report, "n_sampled": len(arrays["nodes"]), "quantiles": found}, list(arrays)

    @cached_property
    def _answers(self) -> Answers:
        return load_answers(self.model.ledger, self.diagonal_weight)

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self._answers.columns, NEAREST)

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
        size = min(len(kept), MOST_SAMPLED, max(100, SAMPLE_ENTRIES // self._answers.n_landmarks))
        return np.sort(np.random.default_rng(self.seed).choice(kept, size, replace=False))

    def _of_nodes(self, first: int, last: int) -> tuple[Answer, dict[str, AnyArray]]:
        """What is said of a range of nodes; and of the sampled ones among them number, distances and answers."""
        sampled = self._sampled[slice(*np.searchsorted(self._sampled, [first, last]))]
        parts, distances = [], [np.empty((0, self._answers.n_landmarks), dtype=np.float32)]
        for start, stop in chunk_ranges(first, last, self.rows.figures["nodes_per_chunk"]):
            chosen = sampled[(sampled >= start) & (sampled < stop)] - start
            part, lengths = self._placed(start, stop, chosen)
            parts.append(part)
            distances.append(lengths)
        whole = self._answers.stacked(parts)
        answers = np.split(whole.coordinates[sampled - first], len(self._answers.coordinates), axis=1)
        named = dict(zip(self._answers.coordinates, answers, strict=True))
        return whole, {"nodes": sampled, "to_landmarks": np.concatenate(distances), **named}

    def _placed(self, start: int, stop: int, sampled: IntArray) -> tuple[Answer, AnyArray]:
        """What is said of a range of nodes, of which only the kept ones have finite distances; and the distances
        (s, m) of some of them, given by their places in the range."""
        kept = self._kept[start:stop]
        sums, distances = self._answers.begin(int(kept.sum())), []
        for batch in self._row_batches:
            lengths = batch.read(start, stop)
            distances.append(lengths[sampled])
            sums.add(lengths if kept.all() else lengths[kept])
        return self._answers.among_others(sums.answer(), kept), np.concatenate(distances, axis=1)

    def _trust(self, result: Answer, partition: int, counts: IntArray) -> FloatArray:
        """The trust columns (n, t) of a group's nodes, in the user's units."""
        # To the nearest other row, which is at no distance where several are the same.
        distances = nearest_of_nodes(self.neighbors, partition)
        return with_nearest(self._answers, result, np.where(counts > 1, 0.0, distances), self.exponent)


def with_nearest(answers: Answers, result: Answer, nearest: FloatArray, exponent: int) -> FloatArray:
    """The columns of trust and the distance to the nearest point, in the user's units."""
    return np.column_stack([answers.trust_in_units(result, exponent), np.ldexp(nearest, exponent)])


def chunk_ranges(first: int, last: int, chunk: int) -> list[tuple[int, int]]:
    """Nodes `first` up to `last`, cut where the stored chunks of their distances end."""
    edges = range((first // chunk + 1) * chunk, last, chunk)
    return list(pairwise([first, *edges, last]))


def packed(sketches: list[Sketch]) -> IntArray:
    """Sketches of several columns as one table: column, bin, count."""
    tables = [np.column_stack([np.full(len(one.bins), i), *one]) for i, one in enumerate(sketches)]
    return np.concatenate(tables).astype(np.int64)


def merged_sketches(table: IntArray, columns: tuple[str, ...]) -> tuple[IntArray, Json]:
    """Tables of `packed` on top of each other as one, and the quantiles of each column."""
    sketches = [merged([Sketch(*table[table[:, 0] == i, 1:].T)]) for i in range(len(columns))]
    return packed(sketches), dict(zip(columns, map(_named_quantiles, sketches), strict=True))


def _named_quantiles(of: Sketch) -> Json:
    return dict(zip(map(str, SHARES), quantiles(of, np.array(SHARES)).tolist(), strict=True))


def gathered(ledger: StageLedger, name: str, groups: list[int]) -> AnyArray:
    """What every group has of an array, one after the other."""
    return np.concatenate([ledger.part(name, group).read() for group in groups])
