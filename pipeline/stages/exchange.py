"""From groups of cells back to the order of the source: what `embed` and `place` write, and `publish` gathers."""

import numpy as np

from pipeline.partitions import RowPartitions
from pipeline.stages.partition import EXCHANGE_BYTES
from pipeline.stages.stage import Outcome
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray


def write_in_row_order(
    ledger: StageLedger, group: int, ordered: Outcome, partitions: RowPartitions, nodes: dict[str, AnyArray]
) -> list[str]:
    """Write what is known of a group's nodes for the source rows that they stand for, rows rising; and how many of
    those each partition of the source has."""
    rows, node_of = (ordered.ledger.part(name, group).read() for name in ("rows", "node_of"))
    order = np.argsort(rows)
    bounds = np.arange(partitions.count + 1) * partitions.rows_each
    arrays = {"rows": rows[order], "counts": np.diff(np.searchsorted(rows[order], bounds))}
    names = ledger.write_parts(group, arrays, EXCHANGE_BYTES)
    return names + ledger.write_taken(group, nodes, node_of[order], EXCHANGE_BYTES)
