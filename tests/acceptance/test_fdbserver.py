"""``tools/fdbserver`` starts a server of its own, or says why it cannot."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from tests.patience import DEADLINE

TOOL = Path(__file__).parent.parent.parent / "tools" / "fdbserver"


def test_a_port_in_use_is_refused_although_a_server_answers_there(tmp_path: Path) -> None:
    # Given: binaries with which every start succeeds
    for name, line in {
        "fdbserver": "while :; do sleep 0.1; done",
        "fdbcli": "echo 'Database created'; echo 'The database is available.'",
    }.items():
        binary = tmp_path / name
        binary.write_text(f"#!/bin/sh\n{line}\n")
        binary.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        variables = {"FDB_BIN": str(tmp_path), "FDB_DIR": str(data), "FDB_PORT": str(port)}

        def call(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [TOOL, command],
                check=False,
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )

        # When
        started = call("start")

    # Then
    running = (data / "pid").exists()
    call("kill")
    assert started.returncode == 1
    assert f"127.0.0.1:{port} is in use by another process" in started.stderr
    assert not running
