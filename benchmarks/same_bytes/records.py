"""What a job left, as names and values that can be compared: bytes as digests, figures as JSON, digests of stages."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import Blosc

from benchmarks.same_bytes import trees

Json = dict[str, Any]
# Each a group of differences: arrays, figures, names of stages' results.
BYTES, FIGURES, DIGESTS = "bytes", "figures", "digests"
# Of a manifest, what names the results of stages.
NAMING = ("stages", "space", "registered_to")
KNOWN_CODECS = (("bytes", "crc32c"), ("bytes", "blosc", "crc32c"))
CHECKSUM_BYTES = 4


def digest_of_array(array: Any) -> str:
    """Of the values, their type and their shape."""
    values = np.ascontiguousarray(array)
    described = f"{values.dtype.str} {values.shape} ".encode()
    return hashlib.sha256(described + values.tobytes()).hexdigest()[:20]


def record_of_store(store: Path, work: Path, version: str | None = None) -> Json:
    """Of a published store, or one of its versions: published arrays, and all that its stages hold.

    `work` is the folder of this tree's results, whose name says nothing.
    """
    opened = trees.open_run(str(store), version)
    record: Json = {BYTES: {}, FIGURES: {"manifest": _without_paths(_told(opened.manifest), work)}, DIGESTS: {}}
    if opened.kind != "model":
        for name in opened.arrays:
            record[BYTES][f"published {name}"] = digest_of_array(opened.embedding(name))
    for stage, entry in opened.manifest["stages"].items():
        folder = store / stage / entry["digest"]
        record[DIGESTS] |= {stage: entry["digest"], f"{stage} seal": entry["seal"]}
        record[FIGURES] |= {f"{stage}{part}": figures for part, figures in _figures(folder)}
        record[BYTES] |= {f"{stage}/{name}": digest for name, digest in _arrays(folder)}
    naming = {name: opened.manifest[name] for name in NAMING[1:] if name in opened.manifest}
    record[DIGESTS] |= {name: json.dumps(value, sort_keys=True) for name, value in naming.items()}
    return record


def _told(manifest: Json) -> Json:
    return {name: value for name, value in manifest.items() if name not in NAMING}


def _without_paths(value: Json, work: Path) -> Json:
    shortened: Json = json.loads(json.dumps(value).replace(str(work), "<work>"))
    return shortened


def _figures(folder: Path) -> Iterator[tuple[str, Any]]:
    """Of the stage and of each of its partitions."""
    for path in sorted((folder / "ledger").glob("*.json")):
        part = "" if path.stem == "finished" else f" {path.stem}"
        yield part, json.loads(path.read_text())["figures"]


def _arrays(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("zarr.json")):
        described = json.loads(path.read_text())
        if described["node_type"] == "array":
            yield str(path.parent.relative_to(folder)), digest_of_array(_values(path.parent, described))


def _values(folder: Path, described: Json) -> Any:
    """An array on disk. zarr reads any, but takes a millisecond or two; there are tens of thousands."""
    shape, chunk = described["shape"], described["chunk_grid"]["configuration"]["chunk_shape"]
    codecs = tuple(codec["name"] for codec in described["codecs"])
    names = [folder / ".".join(["c", str(i), *["0"] * (len(shape) - 1)]) for i in range(-(-shape[0] // chunk[0]))]
    if codecs not in KNOWN_CODECS or 0 in shape or chunk[1:] != shape[1:] or not all(map(Path.exists, names)):
        return zarr.open_array(str(folder), mode="r")[...]
    pieces = [_decoded(path.read_bytes(), "blosc" in codecs) for path in names]
    return np.frombuffer(b"".join(pieces), described["data_type"]).reshape(-1, *shape[1:])[: shape[0]]


def _decoded(data: bytes, compressed: bool) -> bytes:
    """A chunk without its checksum."""
    return bytes(Blosc().decode(data[:-CHECKSUM_BYTES])) if compressed else data[:-CHECKSUM_BYTES]
