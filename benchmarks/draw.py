"""Draws a run's pictures: time and bandwidth against size, both axes logarithmic, a panel for each place or operation.

    draw.py RESULTS_JSONL FOLDER [FORMAT]

Run by `report.py` in the environment ``pictures`` of `setup.py`; prints the names of the files. FORMAT is svg or png.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from cases import BF16, KIB, MIB, size_text
from matplotlib.axes import Axes
from places import title_of
from reference import ONE_WAY, REFERENCE
from tables import BASE, Rounds, Spot

COLOURS = {
    BASE: "#c2410c", "gloo": "#2563eb", "openmpi": "#0f766e", "mpich": "#7c3aed", "ray": "#64748b", "pccl": "#a16207",
}  # fmt: skip
MARKERS = {BASE: "o", "gloo": "s", "openmpi": "^", "mpich": "v", "ray": "D", "pccl": "P"}
PANEL_WIDTH, PANEL_HEIGHT = 3.5, 3.0
MOST_COLUMNS = 4
TICKS = (4, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB)
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "hocket", "font.family": "sans-serif", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e5e7eb",
    "axes.axisbelow": True, "axes.edgecolor": "#9ca3af", "legend.frameon": False,
}  # fmt: skip

Panel = tuple[str, Spot]
"""What stands above it, and what it shows."""
Value = Callable[[int, float], float]
"""What is drawn for a size and a time in microseconds."""


def time_us(_nbytes: int, median_us: float) -> float:
    """Time of a call, in microseconds."""
    return median_us


def gigabytes_per_s(nbytes: int, median_us: float) -> float:
    """Size of the case over its time."""
    return nbytes / median_us / 1e3


def draw(found: Rounds, panels: Sequence[Panel], value: Value, label: str, title: str, path: Path) -> None:
    """Writes one picture of several panels."""
    columns = min(MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (PANEL_WIDTH * columns, PANEL_HEIGHT * rows + 0.5)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, sharey=True)
    handles = {}
    for at, axes in enumerate(grid.flat):
        if at >= len(panels):
            axes.axis("off")
            continue
        head, spot = panels[at]
        handles |= _fill(axes, found, spot, value)
        axes.set_title(head, fontsize=9, loc="left")
        if at % columns == 0:
            axes.set_ylabel(label)
    inches = size[1]
    figure.suptitle(title, x=0.01, y=1 - 0.1 / inches, ha="left", va="top", fontsize=11, fontweight="bold")
    place = (0.005, 1 - 0.28 / inches)
    figure.legend(handles.values(), handles, loc="upper left", ncols=len(handles), bbox_to_anchor=place)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / inches))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(figure)
    if path.suffix == ".svg":
        path.write_text(_shortened(path.read_text(encoding="utf-8")), encoding="utf-8")
    print(path.name)


def _shortened(svg: str) -> str:
    """The same picture without comments, indentation and digits beyond a hundredth of a point."""
    svg = re.sub(r"<!--.*?-->|^ +| +$", "", svg, flags=re.DOTALL | re.MULTILINE)
    svg = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: sans-serif", re.sub(r"(\.\d\d)\d+", r"\1", svg))
    return re.sub(r"\n\n+", "\n", svg)


def _fill(axes: Axes, found: Rounds, spot: Spot, value: Value) -> dict[str, object]:
    sizes, handles = found.spots()[spot], {}
    for system in reversed(found.systems()):  # hocket last, on top of the others
        measured = [(nbytes, found.median((system, *spot, nbytes))) for nbytes in sizes]
        points = [(nbytes, value(nbytes, median_us)) for nbytes, median_us in measured if median_us is not None]
        if points:
            width = 2.2 if system == BASE else 1.3
            look = {"color": COLOURS[system], "marker": MARKERS[system], "linewidth": width, "markersize": width + 2.3}
            handles[system] = axes.plot(*zip(*points, strict=True), **look)[0]
    handles = dict(reversed(handles.items()))
    one_way_us = found.median((REFERENCE, ONE_WAY[0], *spot[1:], ONE_WAY[1]))
    if value is gigabytes_per_s and one_way_us is not None:
        rate = gigabytes_per_s(ONE_WAY[1], one_way_us)
        handles["one TCP connection, one way"] = axes.axhline(rate, color="#9ca3af", linestyle=":", linewidth=1.3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [nbytes for nbytes in TICKS if sizes[0] <= nbytes <= sizes[-1]] or sizes
    axes.set_xticks(
        ticks, [size_text(nbytes) for nbytes in ticks], rotation=40, rotation_mode="anchor", ha="right", fontsize=8
    )
    axes.minorticks_off()
    return handles


def main(results: Path, folder: Path, suffix: str) -> None:
    """Draws everything that the results have."""
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    found = Rounds(line for line in lines if "system" in line)
    spots = [spot for spot in found.spots() if spot[0] != "barrier"]
    everywhere = [(title_of(*spot[1:]), spot) for spot in spots if spot[0] == "all_reduce"]
    shown = ((time_us, "time of a call, µs", "time"), (gigabytes_per_s, "size / time, GB/s", "bandwidth"))
    for value, label, name in shown:
        if everywhere:
            title = f"all_reduce of float32: {name} against size"
            draw(found, everywhere, value, label, title, folder / f"all-reduce-{name}.{suffix}")
        for n in sorted({spot[2] for spot in spots if spot[1] == "host"}):
            others = [spot for spot in spots if spot[1:] == ("host", n) and spot[0] != "all_reduce"]
            panels = [(spot[0], spot) for spot in others if spot[0] != BF16]
            if panels:
                title = f"The other operations on one host, n = {n}: {name} against size"
                draw(found, panels, value, label, title, folder / f"operations-n{n}-{name}.{suffix}")


if __name__ == "__main__":
    plt.rcParams.update(STYLE)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if sys.argv[3:] else "svg")
