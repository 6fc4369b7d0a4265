# SPDX-License-Identifier: Apache-2.0
"""Plots of docs/results/, in one style: a light background of their own, so that dark pages and paper show them alike, and a
marker for each curve beside its colour. The same data give the same bytes with one version of matplotlib."""

from dataclasses import dataclass, field

COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#8f6b00", "#56b4e9", "#000000", "#7f3c8d", "#e69f00", "#666666"]
BARS = ["#1f5fa8", "#f0a04b", "#5fb37a", "#c98bc1", "#b3b3b3"]  # of different lightness, for print
MARKERS = "osD^vPX<>*"
STYLE = {
    "svg.hashsalt": "twill", "svg.fonttype": "none", "font.size": 11, "axes.grid": True, "grid.color": "#d0d0d0", "grid.linewidth": 0.6,
    "figure.facecolor": "#ffffff", "axes.facecolor": "#ffffff", "axes.spines.top": False, "axes.spines.right": False,
    "lines.linewidth": 1.8, "lines.markersize": 5, "legend.frameon": False, "legend.fontsize": 10, "path.simplify": False,
}  # fmt: skip


@dataclass
class Panel:
    """Axes: curves are {label: [(x, y), ...]}, or bars the same with names as x."""

    curves: dict
    x: str = ""
    y: str = ""
    title: str = ""
    xscale: str = "linear"  # log, bytes: sizes by powers of two
    yscale: str = "linear"
    bars: bool = False
    markers: bool = True
    events: tuple = ()  # labels of curves without a line
    limits: dict = field(default_factory=dict)  # of axes.set()


@dataclass
class Plot:
    name: str  # of the file, without .svg
    panels: list
    words: str  # what a reader who does not see it is told


def size_name(count, _=None):
    """Return a number of bytes as 8 B, 64 KiB, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:g} {unit}"
        count /= 1024


def draw_bars(axes, panel):
    names = list(dict.fromkeys(x for points in panel.curves.values() for x, _ in points))
    width = 0.8 / len(panel.curves)
    for i, (label, points) in enumerate(panel.curves.items()):
        at = [names.index(x) + (i + 0.5) * width - 0.4 for x, _ in points]
        axes.barh(at, [y for _, y in points], width, label=label, color=BARS[i])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(False, axis="y")


def plain_ticks(axis, values):
    """Label a logarithmic axis with plain numbers, with more of them if it is short."""
    from matplotlib.ticker import LogLocator, NullFormatter

    values = [value for value in values if value > 0]
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(values) < 200 * min(values) else (1,), numticks=12))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}" if value >= 1e-3 and value < 1e6 else f"{value:.0e}")
    axis.set_minor_formatter(NullFormatter())


def draw_curves(axes, panel):
    for i, (label, points) in enumerate(panel.curves.items()):
        axes.plot(*zip(*points), label=label, color=COLOURS[i % 10], marker=MARKERS[i % 10] if panel.markers else "",
                  linestyle="" if label in panel.events else ["-", "--"][i // 5 % 2])  # fmt: skip
    every = [point for points in panel.curves.values() for point in points]
    if panel.xscale == "bytes":
        axes.set_xscale("log", base=2)
        sizes = sorted({x for x, _ in every})
        axes.set_xticks(sizes[:: -(-len(sizes) // 6)], minor=False)
        axes.xaxis.set_major_formatter(size_name)
        axes.minorticks_off()
    elif panel.xscale == "log":
        axes.set_xscale("log")
        plain_ticks(axes.xaxis, [x for x, _ in every])
    if panel.yscale == "log":
        axes.set_yscale("log")
        plain_ticks(axes.yaxis, [y for _, y in every])


def draw(plot, path, digest):
    """Write the SVG of a plot, with a digest of the data that it was made of."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    with matplotlib.rc_context(STYLE):
        count = len(plot.panels)
        across = min(count, 2)
        down = -(-count // across)
        tall = (
            max(len({x for points in panel.curves.values() for x, _ in points}) for panel in plot.panels)
            if plot.panels[0].bars
            else 0
        )
        figure, all_axes = pyplot.subplots(
            down, across, squeeze=False, figsize=(8.4 if across == 1 else 11, down * max(4, 0.36 * tall + 1.2))
        )
        for axes, panel in zip(all_axes.flat, plot.panels):
            (draw_bars if panel.bars else draw_curves)(axes, panel)
            axes.set(
                xlabel=panel.y if panel.bars else panel.x,
                ylabel="" if panel.bars else panel.y,
                title=panel.title,
                **panel.limits,
            )
        for axes in all_axes.flat[count:]:
            axes.set_visible(False)
        labels, top = list(plot.panels[0].curves), 1.0
        if labels != [""]:
            handles = all_axes.flat[0].get_legend_handles_labels()[0]
            columns = max(1, min(5, len(labels), int(figure.get_figwidth() / (0.085 * max(map(len, labels)) + 0.5))))
            lines = -(-len(labels) // columns)
            top = 1 - (0.1 + 0.26 * lines) / figure.get_figheight()
            figure.legend(handles, labels, loc="upper center", ncol=columns)
        figure.tight_layout(rect=(0, 0, 1, top))
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "\n".join(line.rstrip() for line in text.replace("<svg ", f"<!-- data: {digest} -->\n<svg ", 1).split("\n"))
        )
