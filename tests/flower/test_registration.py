"""Who is let in: the silos whose public keys lie in the server's folder, whatever Flower's database says."""

import subprocess
from pathlib import Path

import pytest

from fedtct.deploy import registration
from fedtct.deploy.keys import make_keys
from fedtct.errors import FedtctError


class Flower:
    """What `flwr supernode` does: a key is let in once, and never again after it was removed."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}  # by key
        self.refused: set[str] = set()

    def run(self, command, **options):
        _, _, word, what, _ = command
        if word == "unregister":
            self.refused.add(what)
        elif (key := Path(what).read_text()) in self.nodes:
            return subprocess.CompletedProcess(command, 1, "", "Public key already in use")
        else:
            self.nodes[key] = str(2**63 + len(self.nodes))
            return subprocess.CompletedProcess(
                command, 0, f"✅ SuperNode {self.nodes[key]} registered successfully.", ""
            )
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def flower(monkeypatch):
    flower = Flower()
    monkeypatch.setattr(registration.subprocess, "run", flower.run)
    return flower


@pytest.fixture
def server(tmp_path):
    make_keys(tmp_path, ["a", "b"], "127.0.0.1:8000")
    (tmp_path / "server" / "superlink.db").touch()
    return tmp_path / "server"


def start(server):
    """As the command does: returns who is let out and in."""
    registration.forget_if_lost(server)
    return registration.unregister(server), registration.register(server)


def test_silos_are_let_in_once_and_out_when_their_keys_are_gone(server, flower, monkeypatch):
    assert start(server) == ([], ["a", "b"])
    assert start(server) == ([], [])
    key = server / "silos" / "a.pub"
    content = key.read_text()
    key.unlink()
    assert start(server) == (["a"], [])
    assert flower.refused == {flower.nodes[content]}
    monkeypatch.setenv("FLWR_HOME", str(server / "flwr"))
    assert list(registration.whose_keys().values()) == ["b"]
    assert start(server) == ([], [])
    key.write_text(content)
    with pytest.raises(FedtctError, match="a was removed, and Flower accepts no key twice"):
        start(server)


def test_a_new_key_of_the_same_name_takes_the_place_of_the_old(server, flower, tmp_path):
    start(server)
    for file in (server / "silos" / "a.pub", *(tmp_path / "a").iterdir()):
        file.unlink()
    make_keys(tmp_path, ["a"])
    assert start(server) == (["a"], ["a"])
    assert len(flower.refused) == 1


def test_when_flower_has_lost_its_database_everybody_is_let_in_again(server, flower):
    start(server)
    (server / "superlink.db").unlink()
    flower.nodes.clear()
    assert start(server) == ([], ["a", "b"])


def test_a_silo_whose_node_was_not_written_down_must_be_let_in_anew(server, flower):
    """Else whoever has its key might call itself by the name of another silo."""
    start(server)
    (server / "flwr" / "registered.json").unlink()
    with pytest.raises(
        FedtctError, match=r"a was let in, but its node was not recorded: stop the server, delete .*superlink.db"
    ):
        start(server)
    (server / "superlink.db").unlink()
    flower.nodes.clear()
    assert start(server) == ([], ["a", "b"])


def test_a_public_key_that_is_cut_off_is_named(server, flower):
    (server / "silos" / "a.pub").write_text("")
    with pytest.raises(FedtctError, match=r"a\.pub is not a public key"):
        start(server)
