"""Print the entries of some packages of a lock file: python infra/locked.py LOCK PACKAGE ...

The image builds the project with a backend that the development lock pins among much else; this takes only that.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path


def main() -> None:
    try:
        sys.stdout.writelines(locked(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]))
    except KeyError as error:
        sys.exit(f"locked: {sys.argv[1]} has no entry for {error}.")


def locked(lock: str, packages: Iterable[str]) -> list[str]:
    """Entries with their hashes, in the order asked for; a KeyError names a package that is not locked."""
    by_name: dict[str, str] = {}
    # An entry is a line that starts with a name, and the indented lines after it; a name may have several by markers.
    for entry, name in re.findall(r"^(([\w.-]+).*\n(?:[ \t].*\n)*)", lock, re.MULTILINE):
        by_name[name] = by_name.get(name, "") + entry
    return [by_name[package] for package in packages]


if __name__ == "__main__":
    main()
