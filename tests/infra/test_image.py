"""What the image is made of, as far as it can be told without building it."""

import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from infra_files import INFRA, ROOT, dockerfile, image_environment, services
from infra_processes import BIN, free_port

BUILD_BACKEND = ["hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"]


def test_the_linter_finds_nothing():
    linter = BIN / "hadolint"
    if not linter.exists():
        pytest.skip("hadolint is installed on Linux only")
    command = [str(linter), "--no-color", str(INFRA / "Dockerfile")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_everything_that_is_copied_is_there_and_not_ignored():
    ignore = (INFRA / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert sources == kept
    assert "*" in ignore
    for source in sources:
        assert (ROOT / source).exists(), source


def test_packages_come_from_the_locks_with_hashes():
    installs = re.findall(r"pip .*?install [^&\n]*", dockerfile())
    assert len(installs) == 3
    for install in installs:
        assert "--no-deps" in install
        assert "--require-hashes" in install or "--no-index" in install, install


def test_the_final_stage_is_for_one_user_and_installs_nothing():
    final = dockerfile().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["10001:10001"]
    assert "apt" not in final
    assert "pip" not in final.replace("pipeline", "")


def test_every_stage_has_one_exact_base():
    bases = set(re.findall(r"^FROM (\S+)", dockerfile(), re.MULTILINE))
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases.pop())


def test_environment_has_one_thread_and_no_analytics():
    environment = image_environment()
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        assert environment[f"{library}_NUM_THREADS"] == "1"
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environment["DO_NOT_TRACK"] == "1"


def test_volumes_are_mounted_where_the_user_owns_the_folder():
    """A new volume takes its owner from the image; elsewhere it would belong to root."""
    owned = re.search(r"install --directory --owner=10001 --group=10001 (.*)$", dockerfile(), re.MULTILINE)
    volumes = {
        mount["target"]
        for service in services().values()
        for mount in service.get("volumes", [])
        if mount["type"] == "volume"
    }
    assert volumes == set(owned.group(1).split())
    assert image_environment()["NUMBA_CACHE_DIR"] in volumes


def locked(lock: Path, *packages: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INFRA / "locked.py"), str(lock), *packages]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_build_backend_is_taken_from_the_development_lock():
    assert f" {' '.join(BUILD_BACKEND)} > " in dockerfile()
    lock = ROOT / "requirements-dev.lock"
    entries = locked(lock, *BUILD_BACKEND).stdout
    assert re.findall(r"^([\w.-]+)==", entries, re.MULTILINE) == BUILD_BACKEND
    assert entries.count("--hash=sha256:") >= len(BUILD_BACKEND)
    assert set(entries.splitlines()) <= set(lock.read_text().splitlines())


def test_a_package_that_is_not_locked_is_named():
    result = locked(ROOT / "requirements-dev.lock", "hatchling", "absent-package")
    assert (result.returncode, result.stdout) == (1, "")
    assert "absent-package" in result.stderr


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_is_what_the_url_answers(status, code):
    with http.server.HTTPServer(("127.0.0.1", 0), answering(status)) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert health(f"http://127.0.0.1:{server.server_port}/health") == code


def test_a_service_that_does_not_listen_is_not_healthy():
    assert health(f"http://127.0.0.1:{free_port()}/health") == 1


def health(url: str) -> int:
    command = [sys.executable, str(INFRA / "healthcheck.py"), url]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def answering(status: int) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests have no log."""

    return Handler
