"""Write the tables of docs/synthetic.md, from the stored lines of the synthetic-data benchmarks.

    python -P benchmarks/synthetic_table.py [--check]

Replaces the text between the page's marks, from benchmarks/synthetic.jsonl (synthetic.py,
synthetic_peers.py) and benchmarks/diffusion.jsonl (diffusion_parties.py): means over the seeds and
the largest distance of one seed from it. `--check` only compares, and fails if they differ.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "synthetic.md"
COLUMNS = ("tstr_auc", "tstr_trees_auc", "tv1", "tv2")
TITLES = {
    "marginals": "pair tables (`marginals`)",
    "random-features": "random features of codes, 1,000 steps",
    "independent columns": "one curator, each column by itself",
    "MST (dpmm)": "one curator's MST (dpmm 0.1.9)",
}
BESIDE = {
    "pair tables without noise": ("twin_auc", None, None, None),
    "the records themselves; held-out ones": ("real_auc", "real_trees_auc", None, "held_out_tv2"),
    "the records' columns, drawn independently": ("independent_auc", None, None, "independent_tv2"),
}


def lines(name):
    """Return the last of equal runs."""
    path = ROOT / "benchmarks" / name
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    keys = ("method", "epsilon", "parties", "steps", "seed")
    return list({tuple(line.get(key) for key in keys): line for line in found}.values())


def spread(values, digits=3):
    """Return the mean of several values, and the largest distance from it."""
    if not values:
        return ""
    mean = fmean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {max(abs(value - mean) for value in values):.{digits}f}"


def tables():
    """Return Adult's table."""
    groups = defaultdict(list)
    for line in lines("synthetic.jsonl"):
        groups[line["method"], line["epsilon"]].append(line)
    shown = [
        "| | ε | seeds | AUC, logistic regression | AUC, boosted trees | TV, columns | pairs |"
    ]
    shown.append("|---|---|---|---|---|---|---|")
    for method, title in TITLES.items():
        for (name, epsilon), own in sorted(groups.items()):
            if name == method:
                cells = [spread([line[column] for line in own]) for column in COLUMNS]
                shown.append(f"| {title} | {epsilon:g} | {len(own)} | {' | '.join(cells)} |")
    every = groups["marginals", 1.0]
    for title, names in BESIDE.items():
        cells = [spread([line[name] for line in every]) if name else "" for name in names]
        shown.append(f"| {title} | | {len(every)} | {' | '.join(cells)} |")
    return shown


def diffusion():
    """Return the table of the diffusion model by number of parties."""
    groups = defaultdict(list)
    for line in lines("diffusion.jsonl"):
        groups[line["steps"], line["parties"]].append(line)
    if not groups:
        return []
    shown = ["| parties | steps | seeds | σ of all shares | loss of the records | accuracy |"]
    shown.append("|---|---|---|---|---|---|")
    for (steps, parties), own in sorted(groups.items()):
        names = ("sigma_of_all_shares", "loss", "accuracy")
        cells = [spread([line[name] for line in own if name in line]) for name in names]
        told = parties or "none: untrained"
        shown.append(f"| {told} | {steps if parties else 0} | {len(own)} | {' | '.join(cells)} |")
    return shown


def page(text):
    """Return the page with the current tables."""
    for name, made in (("adult", tables()), ("diffusion", diffusion())):
        begin, end = f"<!-- {name}: benchmarks/synthetic_table.py -->\n", f"<!-- /{name} -->"
        if begin in text:
            before, rest = text.split(begin, 1)
            after = rest.split(end, 1)[1]
            body = "".join(f"{line}\n" for line in ["", *made, ""]) if made else "\n"
            text = f"{before}{begin}{body}{end}{after}"
    return text


def main():
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text(encoding="utf-8")
    made = page(text)
    if parser.parse_args().check:
        return int(text != made)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
