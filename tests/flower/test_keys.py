"""Keys and certificates: what they hold, who can read them, and that a TLS client believes them."""

import datetime as dt
import errno
import shutil
import socket
import ssl
import stat
import threading
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedtct.deploy import keys
from fedtct.deploy.keys import make_keys, renew_server
from fedtct.deploy.local import LocalDeployment
from fedtct.deploy.processes import write_connection
from fedtct.deploy.silo_config import SiloConfig
from fedtct.errors import FedtctError


def test_each_machine_gets_its_folder_and_private_keys_are_private(tmp_path):
    make_keys(tmp_path / "keys", ["a", "b"], "fl.example.org:8000")
    files = {str(path.relative_to(tmp_path / "keys")) for path in tmp_path.rglob("*") if path.is_file()}
    server = {
        f"server/{name}" for name in ("server.key", "server.crt", "ca.crt", "address", "silos/a.pub", "silos/b.pub")
    }
    silos = {f"{name}/{file}" for name in "ab" for file in (f"{name}.key", "ca.crt", "silo.toml")}
    assert files == {"ca.key", "ca.crt"} | server | silos
    for path in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name in "ab":
        private = load_ssh_private_key((tmp_path / "keys" / name / f"{name}.key").read_bytes(), None)
        public = load_ssh_public_key((tmp_path / "keys" / "server" / "silos" / f"{name}.pub").read_bytes())
        assert private.public_key() == public
    assert SiloConfig.read(tmp_path / "keys" / "a" / "silo.toml").server == "fl.example.org:8000"


def test_a_silo_that_joins_needs_the_key_that_all_trust(tmp_path):
    make_keys(tmp_path, ["a"], "fl.example.org:8000")
    (tmp_path / "ca.key").rename(tmp_path.parent / "kept-away.key")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FedtctError, match=r"ca.key is missing, and the silos here need it: put it back"):
        make_keys(tmp_path, ["b"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path.parent / "kept-away.key").rename(tmp_path / "ca.key")
    make_keys(tmp_path, ["b"])
    assert (tmp_path / "b" / "ca.crt").read_bytes() == (tmp_path / "a" / "ca.crt").read_bytes()


def test_a_path_may_hold_any_sign(tmp_path):
    where = """/it's "data"/\\ü/𝄞.npz"""
    deployment = LocalDeployment(tmp_path, {"a": where})
    assert SiloConfig.read(deployment.silo_file("a")).data == where


def test_a_folder_or_a_silo_may_have_any_name(tmp_path):
    folder = tmp_path / "📁 keys"
    make_keys(folder, ["𝒳"], "127.0.0.1:9000")
    assert SiloConfig.read(folder / "𝒳" / "silo.toml").name == "𝒳"
    write_connection(folder / "server")
    connection = tomllib.loads((folder / "server" / "flwr" / "config.toml").read_text(encoding="utf-8"))
    (certificate,) = [said["root-certificates"] for said in connection["superlink"].values() if isinstance(said, dict)]
    assert certificate == str(folder / "server" / "ca.crt")


def test_certificates_are_valid_for_the_server_and_not_for_ever(tmp_path):
    make_keys(tmp_path, ["a"], "fl.example.org:8000")
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / "server" / "server.crt").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"fl.example.org", "localhost"}
    assert server.not_valid_after_utc - server.not_valid_before_utc < dt.timedelta(days=400)
    assert ca.not_valid_after_utc > server.not_valid_after_utc


def test_a_tls_client_believes_the_ca_and_nobody_else(tmp_path):
    make_keys(tmp_path / "ours", ["a"], "127.0.0.1:8000")
    make_keys(tmp_path / "theirs", ["a"], "127.0.0.1:8000")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ours" / "server" / "server.crt", tmp_path / "ours" / "server" / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(2):
                connection, _ = listener.accept()
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except (ssl.SSLError, OSError):
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        for whose, right in {"ours": True, "theirs": False}.items():
            client = ssl.create_default_context(cafile=tmp_path / whose / "a" / "ca.crt")
            with socket.create_connection(listener.getsockname(), 5) as plain:
                if right:
                    client.wrap_socket(plain, server_hostname="127.0.0.1").close()
                else:
                    with pytest.raises(ssl.SSLCertVerificationError):
                        client.wrap_socket(plain, server_hostname="127.0.0.1")


def test_silos_can_be_added_and_keys_are_never_replaced(tmp_path):
    make_keys(tmp_path, ["a"], "fl.example.org:9000")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    make_keys(tmp_path, ["b"])
    assert SiloConfig.read(tmp_path / "b" / "silo.toml").server == "fl.example.org:9000"
    assert all(path.read_bytes() == content for path, content in before.items())
    with pytest.raises(FedtctError, match="has a key already"):
        make_keys(tmp_path, ["a"])
    with pytest.raises(FedtctError, match=r"is at fl.example.org:9000: leave out --server"):
        make_keys(tmp_path, ["c"], "127.0.0.1:8000")
    shutil.rmtree(tmp_path / "server")  # it went to the server
    with pytest.raises(FedtctError, match="give the server's address with --server"):
        make_keys(tmp_path, ["c"])


def test_a_server_gets_another_certificate_that_silos_trust_as_before(tmp_path):
    with pytest.raises(FedtctError, match=r"lacks ca\.key or server/address"):
        renew_server(tmp_path)
    make_keys(tmp_path, ["a"], "old.example.org:9000")
    ca = x509.load_pem_x509_certificate((tmp_path / "a" / "ca.crt").read_bytes())
    for given, host in {"": "old.example.org", "new.example.org:9001": "new.example.org"}.items():
        before = (tmp_path / "server" / "server.crt").read_bytes()
        written = {path.name for path in renew_server(tmp_path, given)}
        assert written == {"server.key", "server.crt", "ca.crt", "address"}
        after = (tmp_path / "server" / "server.crt").read_bytes()
        assert after != before
        certificate = x509.load_pem_x509_certificate(after)
        certificate.verify_directly_issued_by(ca)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert host in names.get_values_for_type(x509.DNSName)
    assert (tmp_path / "server" / "address").read_text() == "new.example.org:9001\n"


@pytest.mark.parametrize(
    ("silos", "server"),
    [
        ([], "h:1"),
        (["a", "a"], "h:1"),
        (["../a"], "h:1"),
        (["server"], "h:1"),
        (["a"], "h"),
        (["a"], ":1"),
        (["a"], "h:0"),
    ],
)
def test_bad_names_and_addresses_are_refused(silos, server, tmp_path):
    with pytest.raises(FedtctError):
        make_keys(tmp_path, silos, server)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("files", range(10))
def test_keys_that_a_full_disk_did_not_take_are_made_by_the_same_command_again(files, tmp_path, monkeypatch):
    write, left = keys._write, iter(range(files))

    def full(path, content, mode):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content, mode)

    with monkeypatch.context() as patch:
        patch.setattr(keys, "_write", full)
        with pytest.raises(OSError, match="No space"):
            make_keys(tmp_path, ["a"], "127.0.0.1:8000")
    make_keys(tmp_path, ["a"], "127.0.0.1:8000")
    private = load_ssh_private_key((tmp_path / "a" / "a.key").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key((tmp_path / "server" / "silos" / "a.pub").read_bytes())
    ca, server = (
        x509.load_pem_x509_certificate((tmp_path / "server" / f"{n}.crt").read_bytes()) for n in ("ca", "server")
    )
    server.verify_directly_issued_by(ca)
    assert (tmp_path / "a" / "ca.crt").read_bytes() == (tmp_path / "server" / "ca.crt").read_bytes()


def test_a_damaged_ca_is_told_in_words(tmp_path):
    make_keys(tmp_path, ["a"], "127.0.0.1:8000")
    (tmp_path / "ca.key").write_bytes(b"")
    with pytest.raises(FedtctError, match=r"ca.crt or ca.key is damaged"):
        renew_server(tmp_path)
