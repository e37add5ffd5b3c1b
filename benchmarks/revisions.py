"""An earlier revision of the code beside this one: its files, and a process that runs in it."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cache_folder(name: str) -> Path:
    """Where older trees and compiled code are kept between runs, for each working tree apart."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / f"trigpoint-{name}" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]


def extracted(revision: str, tree: Path, *folders: str) -> Path:
    """Folders of a revision, with the modification times of the commit: code that numba compiled for them earlier
    is then still valid, as it would not be in a new worktree."""
    shutil.rmtree(tree, ignore_errors=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", f"{revision}^{{commit}}", *folders],
        stdout=subprocess.PIPE,
        check=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(tree, filter="data")
    return tree
