import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("daemon", ["coordinator", "worker"])
def test_a_daemon_gets_its_arguments_as_they_are(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([daemon, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: hocket {daemon} ")


def test_a_daemon_that_cannot_start_gives_its_status_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coordinator", "--port", "many"]) == 1
    assert re.fullmatch("hocket coordinator: .*many.*\n", capsys.readouterr().err)


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    for command in (
        "run",
        "bench",
        "coordinator",
        "worker",
        "status",
        "workers",
        "jobs",
        "groups",
        "barriers",
        "ops",
        "version",
    ):
        assert re.search(rf"^\W*{command}\b", listed, re.MULTILINE), command


def test_the_version_names_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"hocket \S.*, protocol \d+, Python 3\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_an_error_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-n", "1", "--hosts", "nonsense", "true"]) == 1
    assert re.fullmatch("hocket: argument '--hosts' is .*\n", capsys.readouterr().err)


def test_what_the_command_line_needs_beyond_the_sdk_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "hocket.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main(["version"]) == 1
    assert "hocket[server]" in capsys.readouterr().err
    monkeypatch.undo()
    importlib.import_module("hocket.cli.app")


def test_a_daemon_loads_nothing_of_the_terminals() -> None:
    program = (
        "import sys; from hocket.cli.__main__ import main\n"
        "try: main(['worker', '--help'])\n"
        "except SystemExit: print('typer' in sys.modules, 'rich' in sys.modules)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stdout.splitlines()[-1] == "False False", child.stderr
