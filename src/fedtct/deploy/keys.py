"""Keys and certificates of a federation: a CA, the server's certificate, and a key pair for each silo.

The folder has a part for each machine: ``server/`` goes to the server, ``NAME/`` to the silo of that name, and
``ca.key`` stays where it was made.
"""

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtct.errors import FedtctError
from fedtct.files import replacing
from fedtct.runs.settings import DELTA, HOLDOUT
from fedtct.runs.toml import as_toml

CA_DAYS, SERVER_DAYS = 5 * 365, 398
THIS_MACHINE = "127.0.0.1:8000"
PRIVATE, PUBLIC = 0o600, 0o644
SILO_TOML = """# The settings of this silo. Paths are relative to this file.
name = {name}
data = "data.npz"    # arrays x and y; or a .csv or .parquet file, image folders named by class, "module:function"
# target = ""         # for tables: the column to learn
# task = "auto"       # or "classification", "regression"
# texts = []          # for tables: columns whose numbers are codes
# ignore = []         # for tables: columns to leave out
# group = ""          # for tables: the column that says which patient or machine a row is of; a group is held out whole
server = {server}
ca = "ca.crt"
key = {key}
# holdout = {holdout}       # share of samples kept out of training, to score the model on
# classes = []        # for image folders: the classes that are allowed; by default all
# image_size = []     # for image folders: [height, width] to scale to, or [3, height, width] to make all coloured
# epsilon = 0         # differential privacy that this silo insists on, in all runs together
# delta = {delta}
# device = "auto"     # or "cpu", "cuda"
# precision = "auto"  # of networks: "fp32", "bf16" or "auto" (bf16 on a GPU, except for rows of numbers)
# cache_gb = 50       # gigabytes that this silo may keep on disk during runs
"""


def make_keys(folder: Path, silos: Sequence[str], server: str = "") -> list[Path]:
    """Write what is not there yet; ``server`` is the host:port that silos will use. Returns the new files."""
    server = _address_of_all(folder, server)
    for name in silos:
        if not re.fullmatch(r"[\w-]+", name) or name == "server":
            raise FedtctError(f"'{name}' cannot be a silo's name: use letters, digits, - and _, and not 'server'")
        if (folder / name / f"{name}.key").exists():
            raise FedtctError(f"{folder / name} has a key already: delete the folder to make a new one")
    if len(set(silos)) < len(silos) or not silos:
        raise FedtctError("give each silo a name of its own: --silos a,b,c")
    written = []
    if not (folder / "ca.key").exists():
        if any(folder.glob("*/ca.crt")):  # given to all who are to trust what that key signs
            raise FedtctError(f"{folder / 'ca.key'} is missing, and the silos here need it: put it back")
        written += _make_ca(folder)
    if not (folder / "server" / "server.key").exists():
        written += _make_server(folder, server)
    for name in silos:
        written += _make_silo(folder, name, server)
    return written


def renew_server(folder: Path, server: str = "") -> list[Path]:
    """Another key and certificate for the server, at another address if one is given. Returns the new files."""
    if not (folder / "ca.key").is_file() or not (there := _address(folder)):
        raise FedtctError(f"{folder} lacks ca.key or server/address: renew in the folder that fedtct deploy keys made")
    return _make_server(folder, server or there)


def _address_of_all(folder: Path, given: str) -> str:
    """The address that is given, if it is the first; later silos find the server where the others do."""
    there = _address(folder)
    if given and there and given != there:
        raise FedtctError(f"the server of {folder} is at {there}: leave out --server, or move it with --renew")
    if not given and not there and (folder / "ca.key").exists():
        raise FedtctError(f"{folder}/server/address is missing: give the server's address with --server HOST:PORT")
    address = given or there or THIS_MACHINE
    split_address(address)
    return address


def _address(folder: Path) -> str:
    """Where silos find the server; empty if there is none yet."""
    file = folder / "server" / "address"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise FedtctError(f"'{address}' is not an address: write HOST:PORT, such as fl.example.org:8000")
    return host.strip("[]"), int(port)


def _make_ca(folder: Path) -> list[Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedtct CA")])
    certificate = (
        _certificate(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return [  # keys come last: without one, whatever else was written is made anew
        _write(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM), PUBLIC),
        _write(folder / "ca.key", _pem(key), PRIVATE),
    ]


def _make_server(folder: Path, address: str) -> list[Path]:
    host, _ = split_address(address)
    try:
        ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        ca_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except ValueError as error:
        raise FedtctError(f"{folder}: ca.crt or ca.key is damaged: put back a copy, or make all keys again") from error
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    # The server's own processes reach it on this machine.
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")), _host(host)]
    certificate = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), ca.subject, key.public_key(), SERVER_DAYS
        )
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server = folder / "server"
    return [
        _write(server / "server.crt", certificate.public_bytes(serialization.Encoding.PEM), PUBLIC),
        _write(server / "ca.crt", (folder / "ca.crt").read_bytes(), PUBLIC),
        _write(server / "address", f"{address}\n".encode(), PUBLIC),
        _write(server / "server.key", _pem(key), PRIVATE),
    ]


def _make_silo(folder: Path, name: str, server: str) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    told = {"name": name, "server": server, "key": f"{name}.key", "holdout": HOLDOUT, "delta": DELTA}
    text = SILO_TOML.format(**{setting: as_toml(value) for setting, value in told.items()})
    return [
        _write(folder / name / "ca.crt", (folder / "ca.crt").read_bytes(), PUBLIC),
        _write(folder / name / "silo.toml", text.encode(), PUBLIC),
        _write(folder / "server" / "silos" / f"{name}.pub", public + b"\n", PUBLIC),
        _write(folder / name / f"{name}.key", private, PRIVATE),
    ]


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> Path:
    """A file that is never readable by others, not even for a moment, if it is private."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as half:
        half.unlink(missing_ok=True)
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        half.chmod(mode)
    return path
