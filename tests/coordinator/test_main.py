import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "hocket.coordinator", "--port", "0", "--http-port", "0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_in_good_order(number: signal.Signals) -> None:
    with subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"coordinator listening on 127\.0\.0\.1:\d+, http on (127\.0\.0\.1:\d+)$", line.strip())
        assert found is not None, line
        with urllib.request.urlopen(f"http://{found[1]}/healthz", timeout=5) as response:
            assert response.read() == b'{"status": "ok"}'
        process.send_signal(number)
        assert process.wait(10) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_setting_that_is_unsafe_is_one_line_and_status_one() -> None:
    done = subprocess.run([*COMMAND, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "hocket coordinator: argument 'host' is '0.0.0.0' without a token, allowed is a loopback address, "
        "or any with a token: set --token-file or HOCKET_TOKEN_FILE"
    ]


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "HOCKET_TOKEN_FILE": str(tmp_path / "absent")}
    done = subprocess.run(
        [*COMMAND, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=20, check=False, env=environment
    )
    assert done.returncode == 1
    assert "No such file" in done.stderr
