"""infra/certificates.py makes what a cluster needs and keeps what is there."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from infra_files import INFRA


def made(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INFRA / "certificates.py"), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def verify(host: str, folder: Path, authority: Path) -> None:
    store = Store([certificate(authority / "ca.pem")])
    verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName(host))
    verifier.verify(certificate(folder / "cert.pem"), [])


def test_one_authority_signs_the_certificate_for_the_named_hosts(tmp_path):
    for name in ("mine", "other"):
        assert made(tmp_path / name, "--host", "scheduler.example", "--host", "10.0.0.7").returncode == 0
    verify("scheduler.example", tmp_path / "mine", authority=tmp_path / "mine")
    with pytest.raises(VerificationError):
        verify("elsewhere.example", tmp_path / "mine", authority=tmp_path / "mine")
    with pytest.raises(VerificationError):
        verify("scheduler.example", tmp_path / "mine", authority=tmp_path / "other")


def test_the_key_is_for_its_owner_only(tmp_path):
    assert made(tmp_path / "new" / "folder").returncode == 0
    assert sorted(file.name for file in (tmp_path / "new" / "folder").iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert stat.S_IMODE((tmp_path / "new" / "folder" / "key.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize("present", ["ca.pem", "cert.pem", "key.pem"])
def test_nothing_is_overwritten(tmp_path, present):
    (tmp_path / present).write_text("precious")
    result = made(tmp_path)
    assert result.returncode == 1
    assert str(tmp_path / present) in result.stderr
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(present, "precious")]
