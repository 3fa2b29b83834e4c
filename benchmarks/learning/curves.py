"""Draw what runs of ``stage1.py`` learned, record by record.

``python -m pivot.benchmarks.learning.curves runs/learning/A0 runs/learning/A1 --beat 67.2 --out curves.png``
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pivot.models.extras import need

LINES = {"pivot": ("#0072B2", "pivot step, held-out levels"), "digits": ("#9A9A9A", "digits of cells read")}
STYLES = ("-", "--", ":", "-.")


def draw(runs: list[Path], beat: float | None, path: Path) -> None:
    """Draw accuracy over records; ``beat`` is a line in percent that is to be passed."""
    figure = need("matplotlib.figure", "train").Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for run, style in zip(runs, STYLES, strict=False):
        lines: list[dict[str, Any]] = [
            json.loads(line) for line in (run / "curve.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for name, (colour, label) in LINES.items():
            points = [(each["records"] / 1000, 100 * each[name]) for each in lines if name in each]
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, label=f"{label} ({run.name})")
    if beat is not None:
        axes.axhline(beat, color="#D55E00", linewidth=1.2)
        axes.text(
            0.01, beat + 1.5, f"to pass: {beat:g} %", color="#D55E00", fontsize=9, transform=axes.get_yaxis_transform()
        )
    axes.set(xlabel="records, thousands (reading records included)", ylabel="%", ylim=(0, 103))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=100, facecolor="white")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks.learning.curves", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--beat", type=float)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    draw(chosen.runs, chosen.beat, chosen.out)


if __name__ == "__main__":
    main()
