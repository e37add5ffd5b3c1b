"""Compare this tree with an earlier revision, byte by byte: `python -m benchmarks.same_bytes REV`.

The same small jobs run in both, each in a process of its own. All that they leave is compared. The exit code is 1 if
bytes or figures differ, 0 if only digests of stages do, 2 if a tree cannot be run at all.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.revisions import ROOT, cache_folder, extracted
from benchmarks.same_bytes.compare import report
from benchmarks.same_bytes.data import write_data

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
COMPILED = re.compile(r"\b(numba|compiled|inlined)\b")
NAMES = ("older", "newer")


def main() -> int:
    asked = _asked()
    begin = time.monotonic()
    # So that what is below is ended and cleared away, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    work = _new_folder() if asked.keep is None else asked.keep.resolve()
    try:
        write_data(work / "data")
        caches = cache_folder("same-bytes")
        older = extracted(asked.revision, caches / "older" / "tree", "pipeline")
        running = [
            _started(name, tree, caches / name, work, asked) for name, tree in zip(NAMES, (older, ROOT), strict=True)
        ]
        if not _ended(running, work):
            return 2
        before, after = (json.loads((work / f"{name}.json").read_text()) for name in NAMES)
    finally:
        if asked.keep is None:
            shutil.rmtree(work, ignore_errors=True)
    lines, code = report(before, after)
    print("\n".join(lines))
    print(f"{time.monotonic() - begin:.0f} seconds")
    return code


def _asked() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.same_bytes", description="Compare this tree with a revision.")
    parser.add_argument("revision", metavar="REV", help="a commit, branch or tag to compare with")
    parser.add_argument("--only", metavar="PATTERN", help="only cases whose names match, such as 'isomap*radius'")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave data, stores and records in this new folder")
    asked = parser.parse_args()
    if asked.keep is not None and asked.keep.exists():
        parser.error(f"--keep {asked.keep} exists already; name a new folder")
    return asked


def _new_folder() -> Path:
    """In memory where the system has a folder for that: there are a few megabytes at a time, in many files."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="same-bytes-", dir=memory if os.access(memory, os.W_OK) else None))


def _compiled_code(tree: Path, cache: Path) -> Path:
    """The folder of code compiled for a tree; emptied if any file that is compiled has changed.

    numba looks at the file of a function only, not at those of the functions that it calls.
    """
    sources = sorted((tree / "pipeline").rglob("*.py"))
    texts = [(str(path.relative_to(tree)), path.read_text()) for path in sources]
    digest = hashlib.sha256(repr([text for text in texts if COMPILED.search(text[1])]).encode()).hexdigest()
    folder, mark = cache / "numba", cache / "compiled from"
    if not mark.exists() or mark.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mark.write_text(digest)
    return folder


def _started(name: str, tree: Path, cache: Path, work: Path, asked: Namespace) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **dict.fromkeys(ONE_THREAD, "1"),
        "PYTHONPATH": os.pathsep.join(map(str, dict.fromkeys((tree, ROOT)))),
        "NUMBA_CACHE_DIR": str(_compiled_code(tree, cache)),
    }
    results = work / name
    results.mkdir()
    arguments = [tree, work / "data", results, work / f"{name}.json"]
    options = [*(["--only", asked.only] if asked.only else []), *(["--keep"] if asked.keep else [])]
    # -P: not the folder of the command, which may have a tree of its own.
    command = [sys.executable, "-P", "-m", "benchmarks.same_bytes.driver", *map(str, arguments), *options]
    with (work / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, cwd=results, stdout=log, stderr=log)


def _ended(running: list[subprocess.Popen[bytes]], work: Path) -> bool:
    """Whether both came to their end; what one of them said otherwise is printed."""
    try:
        codes = [process.wait() for process in running]
    finally:
        for process in running:
            process.kill()
    for name, code in zip(NAMES, codes, strict=True):
        if code:
            print(f"the {name} tree ended with {code}:\n{(work / f'{name}.log').read_text()[-4000:]}")
    return not any(codes)


if __name__ == "__main__":
    sys.exit(main())
