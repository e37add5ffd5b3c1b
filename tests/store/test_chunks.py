"""Chunks are Zarr's own, byte for byte."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from numcodecs import blosc
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from pipeline.errors import StoreError
from pipeline.store.arrays import (
    compression_pays,
    compressor,
    create_array,
    decoded,
    encoded,
    even_rows_in,
    open_array,
)
from pipeline.store.ledger import StageLedger
from pipeline.store.local import LocalBackend


def values(dtype, n_rows=11):
    dtype = np.dtype(dtype)
    array = np.random.default_rng(0).integers(0, 2 if dtype.kind == "b" else 100, size=(n_rows, 3)).astype(dtype)
    if dtype.kind == "f":
        array[1, 1], array[2, 2], array[3, 0] = np.nan, -np.inf, -0.0
    return array


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "u1", "?"])
def test_files_are_those_that_zarr_writes(tmp_path, dtype, compressed):
    array = values(dtype)
    create_array(LocalBackend(tmp_path / "ours"), "x", array.shape, array.dtype, 4, compressed).write(0, array)
    blosc_codec = BloscCodec(typesize=array.dtype.itemsize, cname="lz4", clevel=5, shuffle="shuffle")
    theirs = zarr.create_array(
        LocalStore(tmp_path / "theirs"),
        name="x",
        shape=array.shape,
        chunks=(4, 3),
        dtype=array.dtype,
        compressors=(*([blosc_codec] * compressed), Crc32cCodec()),
        fill_value=np.nan if array.dtype.kind == "f" else 0,
        chunk_key_encoding={"name": "default", "separator": "."},
        config={"write_empty_chunks": True},
    )
    theirs[:] = array
    for path in ("zarr.json", "c.0.0", "c.1.0", "c.2.0"):
        assert (tmp_path / "ours" / "x" / path).read_bytes() == (tmp_path / "theirs" / "x" / path).read_bytes(), path
    np.testing.assert_array_equal(zarr.open_array(LocalStore(tmp_path / "ours"), path="x", mode="r")[:], array)
    np.testing.assert_array_equal(open_array(LocalBackend(tmp_path / "theirs"), "x").read(), array)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (0, 0), (4, 8), (3, 9), (10, 11), (11, 11), (5, 6)])
def test_any_rows_can_be_read(tmp_path, start, stop):
    array = values("f8")
    stored = create_array(LocalBackend(tmp_path), "x", array.shape, array.dtype, 4)
    stored.write(0, array)
    np.testing.assert_array_equal(stored.read(start, stop), array[start:stop])


COMPRESSORS = pytest.mark.parametrize("by", [compressor(np.dtype(np.float32)), None])


@COMPRESSORS
def test_every_flipped_bit_is_noticed(by):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    data = bytes(encoded(array, 4, by))
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError, match="checksum does not match"):
            decoded(bytes(changed), (4, 3), array.dtype, by)


@COMPRESSORS
@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 20])
def test_truncated_chunks_are_noticed(size, by):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    with pytest.raises(ValueError, match=r"checksum|cannot reshape|cannot be decompressed"):
        decoded(bytes(encoded(array, 4, by))[:size], (4, 3), array.dtype, by)


@COMPRESSORS
def test_a_chunk_of_another_size_is_refused(by):
    with pytest.raises(ValueError, match="cannot reshape"):
        decoded(bytes(encoded(np.arange(12.0).reshape(4, 3), 4, by)), (5, 3), np.dtype(np.float64), by)


def test_compressed_bytes_are_the_same_in_any_thread():
    array = np.cumsum(np.random.default_rng(0).integers(0, 50, size=(200_000, 4)), axis=0)
    by = compressor(array.dtype)
    once = bytes(encoded(array, len(array), by))
    before = blosc.set_nthreads(8)
    try:
        with ThreadPoolExecutor(4) as pool:
            again = list(pool.map(lambda _: bytes(encoded(array, len(array), by)), range(8)))
        assert {once} == {*again, bytes(encoded(array, len(array), by))}
    finally:
        blosc.set_nthreads(before)


ALONE = """
import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker

import numpy as np
from numcodecs import blosc

from pipeline.store.arrays import compressor, decoded, encoded

registered = []
resource_tracker.register = lambda *named: registered.append(named)
# As in a worker, which is spawned.
multiprocessing.set_start_method("spawn")
blosc.set_nthreads(8)
array = np.cumsum(np.random.default_rng(0).integers(0, 50, size=(200_000, 4)), axis=0)
by = compressor(array.dtype)
here = bytes(encoded(array, len(array), by))
with ThreadPoolExecutor(1) as pool:
    there = pool.submit(lambda: bytes(encoded(array, len(array), by))).result()
np.testing.assert_array_equal(decoded(here, array.shape, array.dtype, by), array)
assert here == there
assert registered == [], registered
assert "zarr" not in sys.modules
"""


def test_without_zarr_the_bytes_are_the_same_and_no_semaphore_is_left_by_a_killed_worker():
    ended = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_chunks_of_earlier_runs_are_read(tmp_path):
    array = values("i8")
    former = (ZstdCodec(level=1), Crc32cCodec())
    theirs = zarr.create_array(
        LocalStore(tmp_path), name="x", shape=array.shape, chunks=(4, 3), dtype=array.dtype, compressors=former
    )
    theirs[:] = array
    np.testing.assert_array_equal(open_array(LocalBackend(tmp_path), "x").read(), array)


@pytest.mark.parametrize(("n_rows", "expected"), [(0, 1), (1, 1), (4, 4), (5, 3), (8, 4), (9, 3), (101, 4)])
def test_chunks_of_an_array_are_of_even_sizes(tmp_path, n_rows, expected):
    rows = np.zeros((n_rows, 2))
    assert even_rows_in(4 * 16, rows, n_rows) == expected
    ledger = StageLedger(LocalBackend(tmp_path), "s", "d")
    ledger.write("x", rows, 4 * 16)
    assert open_array(ledger.store, "s/d/x").chunk_rows == expected


@pytest.mark.parametrize("compressors", [None, (ZstdCodec(level=1),), (Crc32cCodec(), ZstdCodec(level=1))])
def test_chunks_without_a_checksum_behind_them_are_refused(tmp_path, compressors):
    zarr.create_array(LocalStore(tmp_path), name="x", shape=(4,), chunks=(4,), dtype="f8", compressors=compressors)
    with pytest.raises(StoreError, match=r"codecs .* are not those of a run"):
        open_array(LocalBackend(tmp_path), "x")


@pytest.mark.parametrize(
    ("array", "pays"),
    [
        (np.random.default_rng(0).random(4000), False),
        (np.random.default_rng(0).random((500, 8)).astype(np.float32), False),
        (np.random.default_rng(0).integers(0, 256, size=(500, 8)).astype(np.float64), True),
        (np.arange(4000), True),
        (np.empty((0, 3)), True),
    ],
)
def test_compression_pays_where_bytes_have_a_pattern(tmp_path, array, pays):
    assert compression_pays(array) == pays
    ledger = StageLedger(LocalBackend(tmp_path), "s", "d")
    ledger.write("x", array)
    codecs = [codec["name"] for codec in json.loads((tmp_path / "s/d/x/zarr.json").read_text())["codecs"]]
    assert codecs == ["bytes", *(["blosc"] * pays), "crc32c"]
    np.testing.assert_array_equal(open_array(ledger.store, "s/d/x").read(), array)
