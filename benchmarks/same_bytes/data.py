"""The data of the cases, from fixed seeds and without the code that is compared; both trees read the same files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import zarr
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, save_npz
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

Array = NDArray[Any]
N_ROWS, N_NEW, N_MORE = 700, 60, 120
# A partition of the least size has 4,096 rows of so many columns.
N_WIDE, N_WIDE_NEW, WIDE_COLUMNS = 8400, 4300, 64
N_GIVEN, N_TEXTS, N_NODES, N_MANY_NODES = 200, 80, 400, 4300
GAMMA = 0.05


def write_data(folder: Path) -> None:
    """Every file that a case names."""
    folder.mkdir(parents=True)
    _rolls(folder)
    _tables(folder)
    _wide(folder)
    _proximities(folder)
    _objects(folder)
    _graphs(folder)


def roll(n_rows: int, seed: int) -> Array:
    """Points of a sheet that is rolled up in space."""
    rng = np.random.default_rng(seed)
    t = 1.5 * np.pi * np.sqrt(1 + 8 * rng.random(n_rows))
    return np.column_stack([t * np.cos(t), 15 * rng.random(n_rows), t * np.sin(t)])


def _rolls(folder: Path) -> None:
    points, new, more = roll(N_ROWS, 0), roll(N_NEW, 1), roll(N_MORE, 2)
    _save(folder, {"roll": points, "new": new, "more": more, "empty": new[:0]})
    _save(folder, {"roll32": points.astype(np.float32), "new32": new.astype(np.float32)})
    holes, new_holes = points.copy(), new.copy()
    holes[[7, 100], [0, 2]], new_holes[11, 1] = np.nan, np.inf
    _save(folder, {"holes": holes, "new_holes": new_holes})
    pieces = np.concatenate([points[:560], roll(60, 3) + 200.0])
    _save(folder, {"pieces": pieces, "new_pieces": np.concatenate([new[:30], pieces[580:590] + 0.01])})
    _save(folder, {"repeated": np.concatenate([points[:600], points[:50], points[:50]])})
    clusters = np.random.default_rng(4).normal(size=(N_ROWS, 3)) + 5.0 * np.eye(3)[np.arange(N_ROWS) % 3]
    _save(folder, {"clusters": clusters})
    turned = np.random.default_rng(5).normal(size=(3, 8)) * np.geomspace(1, 30, 8)
    _save(folder, {f"{name}8": rows @ turned + 7 for name, rows in (("roll", points), ("new", new), ("more", more))})
    np.savez(folder / "roll.npz", X=points, other=new, names=np.arange(N_ROWS) * 3)
    zarr.create_array(str(folder / "roll.zarr"), data=points)
    (folder / "incoming").mkdir()
    _save(folder / "incoming", {"first": new[:20], "second": new[20:], "third": new[:0]})


def _tables(folder: Path) -> None:
    """Tables with names: of columns in another order in new data, and of rows."""
    for name, rows in (("roll", roll(N_ROWS, 0)), ("new", roll(N_NEW, 1)), ("more", roll(N_MORE, 2))):
        names = list("xyz") if name == "roll" else list("zxy")
        columns: dict[str, Any] = {column: rows[:, "xyz".index(column)] for column in names}
        columns["weight"] = np.arange(len(rows)) / 7
        table = pyarrow.table({**columns, "number": np.arange(len(rows)) + 1000})
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
        texts = [f"{name} {i}" for i in range(len(rows))]
        pyarrow.parquet.write_table(pyarrow.table({**columns, "text": texts}), folder / f"{name}.parquet")


def _wide(folder: Path) -> None:
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDE_COLUMNS, 3)))[0].T
    sizes = {"wide": N_WIDE, "wide_new": N_WIDE_NEW, "wide_more": N_MORE, "wide_empty": 0}
    _save(folder, {name: roll(n_rows, 10 + i) @ turned for i, (name, n_rows) in enumerate(sizes.items())})


def _proximities(folder: Path) -> None:
    rng = np.random.default_rng(20)
    points, new, many = (rng.normal(size=(n, 5)) * [4, 2, 1, 0.5, 0.2] for n in (N_GIVEN, 30, 5000))
    apart, apart_new = cdist(points, points), cdist(points, new)
    _save(folder, {"apart": apart, "apart_new": apart_new})
    gram, gram_new = points @ points.T, points @ new.T
    np.savez(folder / "gram.npz", S=gram, own=gram.diagonal())
    np.savez(folder / "gram_new.npz", S=gram_new, own=(new**2).sum(axis=1))
    _save(folder, {"affine": np.exp(-GAMMA * apart**2), "affine_new": np.exp(-GAMMA * apart_new**2)})
    marks = rng.permutation(N_GIVEN)[:40]
    np.savez(folder / "apart_marks.npz", D=apart[marks], which=marks)
    _save(folder, {"apart_marks_new": apart_new[marks]})
    np.savez(folder / "gram_marks.npz", S=gram[marks], which=marks, own=gram.diagonal())
    np.savez(folder / "gram_marks_new.npz", S=gram_new[marks], own=(new**2).sum(axis=1))
    np.savez(folder / "affine_marks.npz", S=np.exp(-GAMMA * apart[marks] ** 2), which=marks)
    _save(folder, {"affine_marks_new": np.exp(-GAMMA * apart_new[marks] ** 2)})
    np.savez(folder / "apart_many.npz", D=cdist(many[:40], many), which=np.arange(40))
    _save(folder, {"apart_many_new": cdist(many[:40], new)})


def _objects(folder: Path) -> None:
    rng = np.random.default_rng(30)
    texts = np.array(["".join(rng.choice(list("ACGT"), rng.integers(5, 12))) for _ in range(N_TEXTS + 20)])
    _save(folder, {"texts": texts[:N_TEXTS], "texts_new": texts[N_TEXTS:], "texts_empty": texts[:0]})
    _save(folder, {"numbers": roll(4200, 31)})


def _graphs(folder: Path) -> None:
    for name, n_nodes in (("graph", N_NODES), ("many_nodes", N_MANY_NODES)):
        save_npz(folder / f"{name}.npz", town(n_nodes))
        edges = _new_nodes(n_nodes)
        save_npz(folder / f"{name}_new.npz", edges)
        save_npz(folder / f"{name}_empty.npz", edges[:0])
    large, small = town(N_NODES).tocoo(), town(60).tocoo()
    n = N_NODES + 60
    starts, ends = (np.concatenate([getattr(large, side), getattr(small, side) + N_NODES]) for side in ("row", "col"))
    both = coo_array((np.concatenate([large.data, small.data]), (starts, ends)), shape=(n, n))
    save_npz(folder / "graph_pieces.npz", csr_array(both))
    lengths = np.array([0.1, 0.2, 0.1])
    save_npz(folder / "graph_pieces_new.npz", csr_array((lengths, ([0, 0, 1], [3, 9, 430])), shape=(3, n)))
    save_npz(folder / "graph_pieces_empty.npz", csr_array((0, n)))


def town(n_nodes: int) -> csr_array:
    """Places in a rectangle, joined by streets that are longer than the straight way."""
    rng = np.random.default_rng(n_nodes)
    places = rng.random((n_nodes, 2)) * [3.0, 1.0]
    apart, near = map(np.asarray, KDTree(places).query(places, 7))
    lengths = apart[:, 1:].ravel() * (1 + 0.3 * rng.random(6 * n_nodes))
    joined = coo_array((lengths, (np.repeat(np.arange(n_nodes), 6), near[:, 1:].ravel())), shape=(n_nodes, n_nodes))
    one_way = csr_array(joined)
    return csr_array(one_way.maximum(one_way.T))


def _new_nodes(n_nodes: int) -> csr_array:
    rng = np.random.default_rng(41)
    starts, ends = np.repeat(np.arange(30), 3), rng.permutation(n_nodes)[:90]
    return csr_array((0.1 + rng.random(90), (starts, ends)), shape=(30, n_nodes))


def _save(folder: Path, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
