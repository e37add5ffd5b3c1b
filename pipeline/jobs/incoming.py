"""A folder that new data comes into, batch by batch, and a folder for the results of each.

Every entry is a batch, a file or a folder of any kind that a fit takes. What is still being written has a name that
begins with a dot or an underscore or ends in .partial or .tmp, and is given its own when it is complete. A batch is
done once its results are published, and is never done again.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InvalidInputError
from pipeline.store import local_folder, run
from pipeline.types import Json

UNFINISHED_STARTS, UNFINISHED_ENDS = (".", "_"), (".partial", ".tmp")
RESULTS_SUFFIX = ".zarr"


@dataclass(frozen=True)
class Batch:
    """An entry of the folder, and where its results are or will be."""

    source: Path
    output: Path

    @property
    def mark(self) -> Json:
        """What tells the batch from others, and from itself changed; kept with its results."""
        return {"name": self.source.name, "stamp": _stamp(self.source)}

    @property
    def is_done(self) -> bool:
        return self._published is not None

    @property
    def has_changed(self) -> bool:
        """Whether it is not what its results were made from."""
        published = self._published
        return published is not None and published.get("batch") != self.mark

    @property
    def _published(self) -> Json | None:
        if not (self.output / run.MARKER).is_file():
            return None
        return run.read_manifest(run.open_store(self.output))


def batches(folder: str | Path) -> list[Path]:
    """The complete entries of a folder of batches, by their names."""
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"incoming={str(folder)!r} is not a folder; name one that batches are put into.")
    return sorted(entry for entry in path.iterdir() if not _is_unfinished(entry.name))


def batches_with_results(folder: str | Path, output: str | Path) -> list[Batch]:
    """The batches of a folder, each with the folder of its results."""
    results = _results_folder(output)
    if results.exists() and (not results.is_dir() or (results / run.MARKER).exists()):
        raise InvalidInputError(f"output={str(output)!r} is no folder for results of several batches; name another.")
    return [Batch(entry, results / f"{entry.name}{RESULTS_SUFFIX}") for entry in batches(folder)]


def done_batches(output: str | Path) -> list[Path]:
    """The folders of results in a folder of them, by their names; empty if it holds none."""
    folder = _results_folder(output)
    found = sorted(folder.glob(f"*{RESULTS_SUFFIX}")) if folder.is_dir() else []
    return [path for path in found if _holds_an_extension(path)]


def _results_folder(output: str | Path) -> Path:
    folder = local_folder(output)
    if folder is None:
        raise InvalidInputError(f"output={str(output)!r} is not a local folder; results of several batches need one.")
    return folder


def _holds_an_extension(path: Path) -> bool:
    if not (path / run.MARKER).is_file():
        return False
    store = run.open_store(path)
    return run.kind_of(store) == run.EXTENSION and run.read_manifest(store) is not None


def _is_unfinished(name: str) -> bool:
    return name.startswith(UNFINISHED_STARTS) or name.endswith(UNFINISHED_ENDS)


def _stamp(path: Path) -> str:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    seen = ((file.relative_to(path), file.stat()) for file in files if file.is_file())
    parts = [(str(name), status.st_size, status.st_mtime_ns) for name, status in seen]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]
