"""Every example, run the way its docstring says, and what it prints."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 100


def start(command: list[str], limit_s: float) -> str:
    """Output of a command, which must succeed, whatever service the surroundings may speak of."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOCKET_", "RANK", "WORLD"))}
    kept["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(example: str, *more: str) -> str:
    """Output of an example with as many ranks and hosts as its docstring says."""
    path = EXAMPLES / f"{example}.py"
    said = re.search(r"^    hocket run (.*) python examples/(\S+)\.py$", path.read_text(), re.MULTILINE)
    assert said is not None and said[2] == example, f"{path.name} does not say how to run it"
    options = [word for word in said[1].split() if word != "--no-prefix"]
    launcher = [sys.executable, "-m", "hocket.cli", "run", "--no-prefix", "--timeout", str(LIMIT_S)]
    return start([*launcher, *options, sys.executable, str(path), *more], LIMIT_S + 15)


def module(example: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{example}", EXAMPLES / f"{example}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # dataclasses look themselves up there
    spec.loader.exec_module(loaded)
    return loaded


def test_every_example_is_tested_here_and_says_how_it_is_run() -> None:
    text = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.stem}"' in text or f'"{path.name}"' in text, path.name


def test_training_on_four_ranks_and_two_hosts_agrees_with_one_process() -> None:
    output = run("digits", "--epochs", "3")
    assert "rank 0 on host0, rank 1 on host0, rank 2 on host1, rank 3 on host1" in output
    assert re.search(r"^epoch  3  loss 0\.\d+  test accuracy (9\d)\.\d%$", output, re.MULTILINE)
    assert re.search(r"^largest difference of a weight: \d\.\de-1\d \(rounding\)$", output, re.MULTILINE)
    assert "weights of all 4 ranks: the same to the last bit" in output
    assert re.search(r"of it in collectives:\n  \d+ all_reduce of 38 KiB: median \d+ us", output)


def test_a_weight_that_is_off_by_a_millionth_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    digits = module("digits")
    rng = np.random.default_rng(5)
    data = digits.Data(rng.random((digits.TEST + 200, digits.PIXELS)), rng.integers(0, 10, digits.TEST + 200))
    network = digits.Network(seed=1)
    digits.train_alone(network, data, epochs=1)
    assert digits.compare(network, data, epochs=1)
    network.weights[17] += 1e-6
    assert not digits.compare(network, data, epochs=1)
    assert "1.0e-06 (NOT rounding)" in capsys.readouterr().out


def test_reduce_scatter_tensor_refuses_an_output_that_does_not_fit_and_gives_each_rank_its_part() -> None:
    refusal = "argument 'input' is an array of 2 elements, allowed is 4 = 2 x 2: output has 2 elements"
    lines = run("reduce_scatter_tensor").splitlines()
    assert [line.split(", the group")[0] for line in lines[1:3]] == [f"  rank {rank}: {refusal}" for rank in (0, 1)]
    assert lines[3:] == [
        "SUM of [1, 2] and [2, 3]",
        "  rank 0: [3.]",
        "  rank 1: [5.]",
        "PRODUCT of [1, 2] and [2, 3]",
        "  rank 0: [2.]",
        "  rank 1: [6.]",
    ]


def test_all_gather_into_tensor_concatenates_stacks_and_keeps_to_its_group() -> None:
    assert run("all_gather_into_tensor").splitlines() == [
        "concatenated: [1, 2, 2, 3, 3, 4]",
        "stacked: [[1, 2, 3], [11, 12, 13], [21, 22, 23]]",
        "in group 'world/0.1#1': [0, 1, 100, 101]",
        "float64 for int64: argument 'output' is of dtype float64, allowed is int64, the dtype of argument 'input'",
    ]


def test_the_collectives_print_what_each_rank_holds() -> None:
    assert run("collectives").splitlines() == [
        "broadcast_object_list from rank 0",
        *[f"  rank {rank}: ['foo', 12, {{'key': 'value'}}]" for rank in (0, 1)],
        "broadcast from rank 0",
        *[f"  rank {rank}: [0 1 2 3 4 5 6 7 8 9]" for rank in (0, 1)],
        "all_reduce, SUM",
        "  rank 0: [0, 1] -> [2, 4]",
        "  rank 1: [2, 3] -> [2, 4]",
        "gather to rank 0",
        "  rank 0: [0 1]",
        "  rank 1: None",
        "scatter from rank 0",
        "  rank 0: [1. 1.]",
        "  rank 1: [3. 3.]",
    ]


def test_all_to_all_transposes_also_where_sizes_differ() -> None:
    assert run("all_to_all").splitlines() == [
        "all_to_all",
        "  rank 0: [0, 10, 20]",
        "  rank 1: [1, 11, 21]",
        "  rank 2: [2, 12, 22]",
        "all_to_all of uneven sizes",
        *[f"  rank {rank}: [[0], [1, 1], [2, 2, 2]]" for rank in range(3)],
        "all_to_all_single by counts",
        "  rank 0: [0, 1, 2, 2]",
        "  rank 1: [0, 0, 1, 2]",
        "  rank 2: [0, 1, 1, 2]",
    ]


def test_messages_go_around_a_ring_and_name_their_sender() -> None:
    assert run("ring").splitlines() == [
        "the token after 2 rounds: 6",
        "rank 0: left [2. 2.], right [1. 1.]",
        "rank 1: left [0. 0.], right [2. 2.]",
        "rank 2: left [1. 1.], right [0. 0.]",
        "squares: {1: 1, 2: 4}",
    ]


def test_the_blocking_twin_gives_the_same_results() -> None:
    assert run("blocking").splitlines() == [
        "all_reduce: [3. 5.]",
        "all_gather_into_tensor: [[0.0, 0.0], [1.0, -1.0]]",
        "broadcast_object_list: ['from rank 1']",
    ]


def test_weights_reach_the_servers_that_are_left_when_one_has_gone() -> None:
    lines = run("weight_sync").splitlines()
    assert [line for line in lines if line.startswith("trainer")] == [
        "trainer: published version 1 in epoch 1 of 'weights'",
        "trainer: published version 2 in epoch 1 of 'weights'",
        "trainer: a server left; version 3 again, for 1 of them",
        "trainer: published version 3 in epoch 2 of 'weights'",
        "trainer: published version 4 in epoch 2 of 'weights'",
    ]
    assert "server 1: ends at version 4, never without weights" in lines
    assert "server 2: leaves at version 2, never without weights" in lines


def test_a_rank_that_is_wrong_late_or_gone_is_named_to_all() -> None:
    output = run("outcomes")
    assert "ranks 0, 2 called all_reduce(float32[4], op=SUM), rank 1 called all_reduce(float64[4], op=SUM)" in output
    assert output.count("no end within 0.3 s: rank 1 did not arrive") == 3
    assert "the next operation\n  all ranks: 3\n" in output
    assert re.search(r"lost rank 2 \(host \S+, pid \d+\): killed", output)
    assert "2 of 3 ranks go on in group 'survivors': their sum is 2" in output


@pytest.mark.slow
def test_the_demonstration_shows_workers_and_ranks_and_succeeds() -> None:
    output = start([sys.executable, str(EXAMPLES / "demo.py")], 115)
    assert "$ hocket workers" in output and "$ hocket group world" in output
    assert "127.0.0.2:" in output and "(rounding)" in output
