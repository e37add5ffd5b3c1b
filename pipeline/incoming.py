"""A folder that new data comes into, batch by batch.

Every entry is a batch, a file or a folder of any kind that a fit takes. What is still being written has a name that
begins with a dot or an underscore or ends in .partial or .tmp, and is given its own when it is complete.
"""

from pathlib import Path

from pipeline.errors import InvalidInputError

UNFINISHED_STARTS, UNFINISHED_ENDS = (".", "_"), (".partial", ".tmp")


def batches(folder: str | Path) -> list[Path]:
    """The complete entries of a folder of batches, by their names."""
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"incoming={str(folder)!r} is not a folder; name one that batches are put into.")
    return sorted(entry for entry in path.iterdir() if not _is_unfinished(entry.name))


def _is_unfinished(name: str) -> bool:
    return name.startswith(UNFINISHED_STARTS) or name.endswith(UNFINISHED_ENDS)
