"""Zarr arrays that others wrote: read in every format, and nothing they describe is run or trusted."""

import json
import os
import pickle

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from pipeline.errors import InvalidInputError
from pipeline.store.foreign import ForeignArray, array_folders, is_array

FORMATS = [2, 3]


class Payload:
    """Would leave a file behind if it were ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def created(path, data, zarr_format=3, **options):
    zarr.create_array(path, data=data, zarr_format=zarr_format, **{"chunks": (4, *data.shape[1:]), **options})
    return path


def described(path, change):
    """Change the description of an array."""
    file = next(file for file in (path / "zarr.json", path / ".zarray") if file.exists())
    file.write_text(json.dumps(json.loads(file.read_text()) | change))


@pytest.fixture
def array(rng):
    return rng.normal(size=(10, 3))


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("dtype", [np.float64, ">f4", np.float16, np.int8, np.uint64, np.bool_])
def test_rows_are_read_in_the_dtype_of_the_array(tmp_path, rng, zarr_format, dtype):
    array = rng.integers(0, 2, size=(10, 3)).astype(dtype)
    found = ForeignArray(created(tmp_path / "x", array, zarr_format))
    assert (found.shape, found.read(0, 1).dtype) == ((10, 3), found.dtype)
    # Format 3 has the order of bytes in a codec, not in the dtype.
    assert found.dtype == (np.dtype(dtype) if zarr_format == 2 else np.dtype(dtype).newbyteorder("="))
    copy = pickle.loads(pickle.dumps(found))
    for start, stop in [(0, 10), (3, 9), (5, 5), (9, 10)]:
        np.testing.assert_array_equal(found.read(start, stop), array[start:stop])
        np.testing.assert_array_equal(copy.read(start, stop, (2, 0)), array[start:stop, [2, 0]])


@pytest.mark.parametrize(
    "options",
    [
        {"shards": (8, 3)},
        {"compressors": None},
        {"compressors": zarr.codecs.BloscCodec()},
        {"compressors": [zarr.codecs.GzipCodec(), Crc32cCodec()]},
        {"chunks": (4, 2)},
        {"chunks": (10, 3)},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
)
def test_the_usual_codecs_are_read(tmp_path, array, options):
    np.testing.assert_array_equal(ForeignArray(created(tmp_path / "x", array, **options)).read(0, 10), array)


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_arrays_are_found_below_groups_at_any_depth(tmp_path, array, zarr_format):
    group = zarr.create_group(tmp_path / "g", zarr_format=zarr_format)
    inner = group.create_group("inner")
    group.create_array("x", data=array)
    inner.create_array("y", data=array)
    (tmp_path / "g" / "other").mkdir()
    assert list(array_folders(tmp_path / "g")) == ["inner/y", "x"]
    assert is_array(tmp_path / "g" / "x")
    assert not is_array(tmp_path / "g")


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, "half"])
def test_a_damaged_chunk_is_an_error_that_names_the_array(tmp_path, array, zarr_format, damage):
    path = created(tmp_path / "x", array, zarr_format)
    chunk = path / ("1.0" if zarr_format == 2 else "c/1/0")
    data = chunk.read_bytes()
    chunk.write_bytes(data[: len(data) // 2] if damage == "half" else damage)
    found = ForeignArray(path)
    np.testing.assert_array_equal(found.read(0, 4), array[:4])
    with pytest.raises(InvalidInputError, match=r"/x cannot be read in rows 2 to 6; a chunk is damaged"):
        found.read(2, 6)


def test_a_flipped_bit_under_a_checksum_is_an_error(tmp_path, array):
    path = created(tmp_path / "x", array, serializer=BytesCodec(), compressors=[Crc32cCodec()])
    data = bytearray((path / "c/1/0").read_bytes())
    data[3] ^= 1
    (path / "c/1/0").write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"/x cannot be read in rows 4 to 5"):
        ForeignArray(path).read(4, 5)


@pytest.mark.parametrize("dtype", ["|O", "<f8"])
def test_nothing_is_ever_unpickled(tmp_path, array, dtype):
    path = created(tmp_path / "x", array, 2, compressors=None)
    described(path, {"dtype": dtype, "filters": [{"id": "pickle", "protocol": 5}], "compressor": None})
    for chunk in ("0.0", "1.0", "2.0"):
        (path / chunk).write_bytes(pickle.dumps(Payload(tmp_path / "owned")))
    with pytest.raises(InvalidInputError, match=r"/x uses the codec 'pickle', which is not known to be safe"):
        ForeignArray(path).read(0, 10)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("zarr_format", "change", "message"),
    [
        (2, {"compressor": {"id": "nope"}}, "uses the codec 'nope'"),
        (2, {"filters": [{"id": "msgpack2"}]}, "uses the codec 'msgpack2'"),
        (2, {"dtype": "|O", "filters": None}, "has dtype object; objects are never loaded"),
        (2, {"filters": 3}, "its description is not understood"),
        (2, {"chunks": [4]}, "its description is not understood"),
        (2, {"zarr_format": 7}, "its description is not understood"),
        (3, {"codecs": [{"name": "bytes"}, {"name": "nope"}]}, "uses the codec 'nope'"),
        (3, {"codecs": ["pickle"]}, "uses the codec 'pickle'"),
        (
            3,
            {"codecs": [{"name": "sharding_indexed", "configuration": {"codecs": [{"name": "nope"}]}}]},
            "uses the codec 'nope'",
        ),
        (3, {"codecs": None}, "its description is not understood"),
        (3, {"data_type": "nope"}, "its description is not understood"),
        (3, {"zarr_format": 4}, "its description is not understood"),
    ],
)
def test_a_description_that_is_not_known_to_be_safe_is_refused(tmp_path, array, zarr_format, change, message):
    path = created(tmp_path / "x", array, zarr_format)
    described(path, change)
    with pytest.raises(InvalidInputError, match=message):
        ForeignArray(path)


@pytest.mark.parametrize(("text", "message"), [("{", "it is not JSON"), ("[]", "it holds list, not an object")])
def test_a_damaged_description_is_named(tmp_path, array, text, message):
    path = created(tmp_path / "x", array)
    (path / "zarr.json").write_text(text)
    with pytest.raises(InvalidInputError, match=rf"zarr\.json is damaged: {message}"):
        is_array(path)


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_the_fingerprint_changes_with_any_file_and_nothing_is_written(tmp_path, array, zarr_format):
    path = created(tmp_path / "x", array, zarr_format)
    found = ForeignArray(path)
    before = found.fingerprint()
    found.read(0, 10)
    assert ForeignArray(path).fingerprint() == before
    chunk = path / ("2.0" if zarr_format == 2 else "c/2/0")
    os.utime(chunk, ns=(1, 1))
    touched = found.fingerprint()
    chunk.unlink()
    assert len({str(print_) for print_ in (before, touched, found.fingerprint())}) == 3
