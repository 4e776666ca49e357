"""A cluster behind TLS: what the client needs reaches it, and nobody else gets in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.running import Fdbq

BINARIES = os.environ.get("FDB_BIN")
SERVER = shutil.which("fdbserver", path=BINARIES)
FDBCLI = shutil.which("fdbcli", path=BINARIES)
needed = pytest.mark.skipif(
    not (SERVER and FDBCLI and shutil.which("openssl")),
    reason="needs fdbserver and fdbcli (FDB_BIN or the PATH), and openssl",
)
PEERS = "Check.Valid=1,O=example"


class Authority:
    """Makes certificates with openssl."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        self.ca = directory / f"{name}.pem"
        self._run("req", "-x509", "-subj", f"/CN={name}", "-out", self.ca, key=self._key(name))

    def _key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def _run(self, *arguments: object, key: Path | None = None) -> None:
        made = ("-newkey", "rsa:2048", "-nodes", "-keyout", key) if key else ()
        command = ["openssl", *arguments, *made]
        subprocess.run([*map(str, command)], check=True, capture_output=True)

    def environment(self, organization: str) -> dict[str, str]:
        """What a client or a server must be told, as an organization."""
        name = f"{self.name}-{organization}"
        asked, given = self.directory / f"{name}.csr", self.directory / f"{name}.pem"
        self._run("req", "-subj", f"/CN=x/O={organization}", "-out", asked, key=self._key(name))
        signing = ("-CA", self.ca, "-CAkey", self._key(self.name), "-CAcreateserial")
        self._run("x509", "-req", "-in", asked, *signing, "-out", given)
        return {
            "FDB_TLS_CERTIFICATE_FILE": str(given),
            "FDB_TLS_KEY_FILE": str(self._key(name)),
            "FDB_TLS_CA_FILE": str(self.ca),
            "FDB_TLS_VERIFY_PEERS": PEERS,
        }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A server behind TLS: its cluster file, and the environment that its clients need."""
    assert SERVER is not None
    assert FDBCLI is not None
    own = Authority(tmp_path, "ca").environment("example")
    cluster = tmp_path / "fdb.cluster"
    address = f"127.0.0.1:{free_port()}:tls"
    cluster.write_text(f"tls:fdbqueue@{address}\n")
    (tmp_path / "data").mkdir()
    command = [SERVER, "-p", address, "-C", str(cluster), "-d", str(tmp_path / "data")]
    environment = {**os.environ, **own}
    process = subprocess.Popen(
        [*command, "-L", str(tmp_path), "--memory", "3GiB", "--cache-memory", "256MiB"],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        configure = [FDBCLI, "-C", str(cluster), "--timeout", "60", "--exec"]
        subprocess.run(
            [*configure, "configure new single memory"], check=True, env=environment, timeout=90
        )
        yield cluster, own
    finally:
        process.kill()
        process.wait()


@needed
def test_certificates_of_the_environment_or_of_network_options_open_a_cluster_and_nothing_else_does(
    secured: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    cluster, own = secured
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FDB_TLS_")}
    plain["FDBQUEUE_STORE"] = str(cluster)
    # Given a client whose environment names its certificates
    fdbq = Fdbq({**plain, **own})
    fdbq.ok("queue", "create", "orders")
    fdbq.ok("enqueue", "orders", "order 17")
    # And a program that names them itself
    program = (
        "import sys, fdbqueue; from fdbqueue import fdb\n"
        "certificate, key, ca, peers = sys.argv[1:]\n"
        "fdb.options.set_tls_cert_path(certificate)\n"
        "fdb.options.set_tls_key_path(key)\n"
        "fdb.options.set_tls_ca_path(ca)\n"
        "fdb.options.set_tls_verify_peers(peers.encode())\n"
        "db = fdbqueue.open(timeout=60)\n"
        "print(fdbqueue.Queue('orders').receive(db, at_most_once=True).payload.decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *own.values()],
        env=plain,
        check=True,
        capture_output=True,
        text=True,
    )
    # Then both reach the cluster
    assert done.stdout == "order 17\n"
    # And whoever has none, those of somebody else, or does not trust the server does not
    others: tuple[dict[str, str], ...] = (
        {},
        Authority(tmp_path, "other").environment("example"),
        {**own, "FDB_TLS_VERIFY_PEERS": "Check.Valid=1,O=else"},
    )
    for theirs in others:
        fdbq = Fdbq({**plain, **theirs})
        assert "did not answer" in fdbq.refused("status", "--timeout", "2", code=1)
