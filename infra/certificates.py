"""Make a private authority and one certificate for a Dask cluster.

Usage: python infra/certificates.py FOLDER [--host NAME ...]

Scheduler, workers and clients share the certificate, and each accepts only what the authority signed: holding the key
is the right to take part. The authority's own key is never written, so nobody can sign another; new certificates need
a new authority, in a new folder.
"""

import argparse
import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DEFAULT_HOSTS = ("dask-scheduler", "localhost", "127.0.0.1")
DAYS = 365
# Clocks of two machines differ by minutes; a certificate must not be "not yet valid" on the other.
CLOCK_DIFFERENCE = datetime.timedelta(hours=1)
FILES = ("ca.pem", "cert.pem", "key.pem")


def main() -> None:
    options = _parser().parse_args()
    try:
        write_certificates(options.folder, options.host or DEFAULT_HOSTS, options.days)
    except OSError as error:
        sys.exit(f"certificates: {error}")
    written = ", ".join(str(options.folder / name) for name in FILES)
    sys.stdout.write(f"Wrote {written}; valid for {options.days} days.\n")


def write_certificates(folder: Path, hosts: tuple[str, ...] | list[str] = DEFAULT_HOSTS, days: int = DAYS) -> None:
    """Write ca.pem, cert.pem and key.pem (readable by its owner only) into a folder that has none of them."""
    present = [str(folder / name) for name in FILES if (folder / name).exists()]
    if present:
        raise FileExistsError(f"{', '.join(present)} exists already and is kept; name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, days)
    certificate = _certificate(key, hosts, authority, authority_key, days)
    _write_new(folder / "key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write_new(folder / "cert.pem", certificate.public_bytes(Encoding.PEM), 0o644)
    _write_new(folder / "ca.pem", authority.public_bytes(Encoding.PEM), 0o644)


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = _name("trigpoint cluster authority")
    builder = (
        _builder(name, name, key.public_key(), days)
        # It signs certificates of members only, no further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return builder.sign(key, SHA256())


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...] | list[str],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.Certificate:
    of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    # A worker is a server to its peers and a client of the scheduler.
    both_ways = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(_name("trigpoint cluster"), authority.subject, key.public_key(), days)
        .add_extension(of_authority, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(both_ways, critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
    )
    return builder.sign(authority_key, SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_DIFFERENCE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_new(file: Path, content: bytes, mode: int) -> None:
    """Created with its final mode and exclusively: a key is never readable by others, not even for a moment."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make a private authority and one certificate for a Dask cluster.")
    parser.add_argument("folder", type=Path, help="where ca.pem, cert.pem and key.pem go")
    parser.add_argument(
        "--host", action="append", help=f"name or address of a member; repeat for several ({', '.join(DEFAULT_HOSTS)})"
    )
    parser.add_argument("--days", type=int, default=DAYS, help=f"how long they are valid ({DAYS})")
    return parser


if __name__ == "__main__":
    main()
