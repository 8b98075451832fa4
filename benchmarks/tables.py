"""Writes the tables of README.md and docs/, and docs/growth.png, from results/*.json; ``--check`` looks for drift.

A table stands between ``<!-- table: name -->`` and ``<!-- end -->``; its content is never edited by hand.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import abilities_tables
import architecture
import coverage_tables
import deep
import diffusion
import digits
import executor_tables
import from_compiled
import functional_rotations
import functional_theorems
import lab_tables
import llama_cost
import llama_families
import llama_tables
import optimisers
import products
import reliability_tables
import reproduction_tables
import score_learner
import settings_tables
import table_ablation
import table_blanks
import table_categories
import table_many_classes
import table_prior
import table_times
import tables_learner_zoo
import variants
import zoo
from _results import read
from innergrad import figures
from real import limit_pages as real_limits
from real import pages as real_pages

ROOT = Path(__file__).parent.parent


def gradient_error() -> list[str]:
    """Worst cell of the matrix, by activation and depth."""
    matrix = read("gradient_error")["matrix"]
    lines = [
        "| activation | N <= 6: median | 95% | max | N = 10, 12: median | 95% | max |",
        "|---|---|---|---|---|---|---|",
    ]
    for activation in dict.fromkeys(cell["activation"] for cell in matrix):
        entries = []
        for beyond in (False, True):
            group = [cell for cell in matrix if cell["activation"] == activation and (cell["N"] > 6) == beyond]
            entries += [f"{max(cell[key] for cell in group):.1f}" for key in ("median", "q95", "max")]
        lines.append(f"| {activation} | {' | '.join(entries)} |")
    within = sum(cell["within"] for cell in matrix)
    lines.append("| *claimed* | *5* | *10* | | *10* | *25* | |")
    lines += ["", f"{within:,} of {len(matrix):,} configurations are within the claimed bounds."]
    return lines


def outputs() -> list[str]:
    """The error grows with the number of outputs."""
    growth = read("gradient_error")["growth"]
    lines = ["| d_y | " + " | ".join(str(row["d_y"]) for row in growth["outputs"]) + " |"]
    lines.append("|---|" + "---|" * len(growth["outputs"]))
    for name, key in (("N = 6", "outputs"), ("N = 12", "outputs_deep")):
        lines.append(
            f"| {name}: median / 95% | " + " | ".join(f"{r['median']:.1f} / {r['q95']:.0f}" for r in growth[key]) + " |"
        )
    return lines


def more_outputs() -> list[str]:
    """The matrix at K = 8 with other numbers of outputs: how many configurations are outside, and which."""
    lines = ["| d_y | configurations | outside | worst median / 95%, N <= 6 | N = 10, 12 | losses outside |"]
    lines.append("|---|---|---|---|---|---|")
    matrices = {"2 (softmax: 4)": [cell for cell in read("gradient_error")["matrix"] if cell["K"] == 8]}
    matrices |= {str(d_y): read(f"gradient_error_{d_y}_outputs")["matrix"] for d_y in (3, 8)}
    for name, matrix in matrices.items():
        outside = [cell for cell in matrix if not cell["within"]]
        worst = []
        for beyond in (False, True):
            group = [cell for cell in matrix if (cell["N"] > 6) == beyond]
            worst.append(f"{max(cell['median'] for cell in group):.1f} / {max(cell['q95'] for cell in group):.1f}")
        losses = ", ".join(sorted({cell["loss"] for cell in outside})) or "none"
        lines.append(f"| {name} | {len(matrix):,} | {len(outside)} | {worst[0]} | {worst[1]} | {losses} |")
    return lines


def ramps() -> list[str]:
    """Wide ramps and narrow ones side by side."""
    rows = read("ramps")["ramps"]
    widths = sorted({row["width"] for row in rows}, reverse=True)
    heads = [f"ramps 2^{math.log2(width):.0f}: steps with a hit | runs off by 1e-6 | error" for width in widths]
    lines = [f"| activation | N | heads | {' | '.join(heads)} |", "|---" * (3 + 3 * len(widths)) + "|"]
    for activation, N in dict.fromkeys((row["activation"], row["N"]) for row in rows):
        chosen = [row for row in rows if (row["activation"], row["N"]) == (activation, N)]
        cells = [
            f"{row['steps_with_hits']} of {row['steps']} | {row['runs_off']} of {row['runs']} | "
            f"{max(row['max_error_with_hits'], row['max_error_without_hits']):.0e}".replace("0e+00", "0")
            for row in chosen
        ]
        lines.append(f"| {activation} | {N} | {chosen[0]['heads']} | {' | '.join(cells)} |")
    return lines


def ramp_rounding() -> list[str]:
    rows = read("ramps")["rounding"]
    widths = list(dict.fromkeys(row["width"] for row in rows))
    names = (f"2^{math.log2(width):.0f}" for width in widths)
    lines = [f"| matrices against program, ramps | {' | '.join(names)} |", "|---" * (1 + len(widths)) + "|"]
    for activation in dict.fromkeys(row["activation"] for row in rows):
        for dtype in ("float64", "float32"):
            found = [row[dtype] for row in rows if row["activation"] == activation]
            cells = ["refused" if value is None else f"{value:.0e}" for value in found]
            lines.append(f"| {activation}, {dtype} | {' | '.join(cells)} |")
    return lines


def pieces() -> list[str]:
    rows = read("pieces")["pieces"]
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    lines = [
        "| pieces (formula) | " + " | ".join(f"{e:.0e}" for e in epsilons) + " |",
        "|---|" + "---|" * len(epsilons),
    ]
    for activation in dict.fromkeys(row["activation"] for row in rows):
        cells = [f"{row['pieces']} ({row['formula']:.1f})" for row in rows if row["activation"] == activation]
        lines.append(f"| {activation} | {' | '.join(cells)} |")
    lines.append("| *the paper, eps^-2* | " + " | ".join(f"*{e**-2:.0e}*" for e in epsilons) + " |")
    return lines


BLOCKS = {
    "literal": "ReLU attention, MLP, products",
    "attention": "kernel attention",
    "pre-ln": "GPT-2 (pre-LN)",
    "raw": "the same without LN before attention",
    "sink": "softmax attention with a sink, MLP",
    "mean": "softmax attention, MLP",
    "backprop": "σ attention, MLP (gelu)",
    "recursion": "σ attention, MLP (gelu)",
}


def _size(error: float | None) -> str:
    return "out of range" if error is None else f"{error:.0e}"


def constructions() -> list[str]:
    """One row per construction and target."""
    head = ["construction", "from", "block", "blocks a step (+ read-out)", "heads", "width", "MLP units", "nonzeros"]
    head += ["float64", "float32", "error of, against", "the paper", "ours"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in read("constructions")["constructions"]:
        per_step = f"{row['layers_per_step']:g}" + (f" (+ {row['readout']})" if row["readout"] else "")
        cells = [
            row["name"],
            row["paper"],
            BLOCKS[row["variant"]],
            per_step,
            row["heads"],
            row["width"],
            row["units"] or "—",
        ]
        cells += [f"{row['parameters']:,}", *(_size(row[key]) for key in ("float64", "float32"))]
        cells += [f"{row['what']}, {row['against']}", row["says"], row["ours"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def stock() -> list[str]:
    lines = [
        "| | blocks | width | GPT2Model, float64 | GPT2Model, float32 | ONNX Runtime, float32 | ONNX Runtime − ours |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for row in read("constructions")["stock"]:
        onnx = [f"{row[key]:.0e}" if key in row else "—" for key in ("onnx", "onnx_ours")]
        errors = [f"{row['float64']:.0e}", f"{row['float32']:.0e}", *onnx]
        lines.append(f"| {row['name']} | {row['blocks']} | {row['width']} | {' | '.join(errors)} |")
    return lines


def depth() -> list[str]:
    lines = ["| layers | constant, float64 | Chebyshev, float64 | constant, float32 | Chebyshev, float32 |"]
    lines.append("|---|---|---|---|---|")
    rows = read("constructions")["depth"]
    for row in rows:
        keys = ("constant_float64", "chebyshev_float64", "constant_float32", "chebyshev_float32")
        lines.append(f"| {row['layers']} | " + " | ".join(f"{row[key]:.1e}" for key in keys) + " |")
    lines += [
        "",
        f"The Bayes predictor itself has a mean squared error of {rows[0]['bayes_mse']:.3f} on these prompts.",
    ]
    return lines


def targets() -> list[str]:
    """The summary of docs/targets.md: the largest errors of the constructions, by algorithm and block."""
    chosen = {
        "gradient descent, N = 3, K = 4, 20 steps": "gradient descent on a 3-layer network, 20 steps",
        "SGD, d = 8": "online SGD over 40 examples",
        "ridge by RLS, d = 8": "ridge regression on each of 40 prefixes",
        "functional GD, exp kernel, 64 layers": "functional gradient descent, exp kernel, 64 steps",
    }
    lines = ["| algorithm | block | blocks a step | width | float64 | float32 |", "|---|---|---|---|---|---|"]
    for name in chosen:
        for row in (row for row in read("constructions")["constructions"] if row["name"] == name):
            cells = [chosen[row["name"]], BLOCKS[row["variant"]], f"{row['layers_per_step']:g}", str(row["width"])]
            lines.append("| " + " | ".join([*cells, f"{row['float64']:.0e}", f"{row['float32']:.0e}"]) + " |")
    return lines


def _power(log10: float) -> str:
    return f"10^{log10:,.0f}" if log10 > 6 else f"{10**log10:,.0f}"


def softmax() -> list[str]:
    """Three softmax transformers for the same network, side by side."""
    head = "| network, examples | variant | blocks a step | heads | width | MLP units | nonzeros | float64 | float32 |"
    lines = [head, "|---" * 9 + "|"]
    for row in read("constructions")["softmax"]:
        name = f"{row['name']}, n = {row['n']}"
        if row["variant"] == "lookup":
            units = f"about {_power(row['log10_rows_16'])} with 16 cells an entry"
            same = f"about {_power(row['log10_rows_same'])} for the error of `sink`"
            lines.append(f"| {name} | `lookup` | 3 | 1 | | {units}; {same} | | | |")
            continue
        cells = [f"{row['layers']:g}", row["heads"], row["width"], f"{row['units']:,}", f"{row['parameters']:,}"]
        errors = [f"{row[key]:.0e}" for key in ("float64", "float32")]
        lines.append("| " + " | ".join(map(str, [name, f"`{row['variant']}`", *cells, *errors])) + " |")
    return lines


def lookup() -> list[str]:
    """Lemma 16 for one weight and two examples."""
    lines = ["| cells D | sequences D⁵ | rows | MLP units | max error | rms | ids apart by | dense − program |"]
    lines.append("|---" * 8 + "|")
    for row in read("constructions")["lookup"]:
        sizes = " | ".join(f"{row[key]:,}" for key in ("cells", "sequences", "rows", "units"))
        lines.append(f"| {sizes} | {row['max']:.2f} | {row['rms']:.3f} | {row['gap']:.0e} | {row['dense']:.0e} |")
    return lines


def decay() -> list[str]:
    """Twelve functions and the general decay condition."""
    lines = ["| σ | condition | why | terms of the sum |", "|---" * 4 + "|"]
    for row in read("decay")["decay"]:
        verdict = {True: "holds", False: "fails", None: "undecided"}[row["holds"]]
        why = f"{row['kind']}: {row['reason']}".replace("|", "\\|")
        lines.append(f"| {row['name']} | {verdict} | {why} | {row['terms'] or ''} |")
    return lines


def sigma() -> list[str]:
    """Theorem 1: heads a neuron against the error of the new weights."""
    lines = ["| σ | general decay condition | 12 heads a neuron | 24 | 48 | float32 (its ε) |", "|---" * 6 + "|"]
    for row in read("constructions")["sigma"]:
        decay = "holds" if row["decay"] else "fails: frequencies instead of knots"
        errors = " | ".join(f"{row[f'heads_{units}']:.0e}" for units in (12, 24, 48))
        lines.append(f"| {row['sigma']} | {decay} | {errors} | {row['float32']:.0e} ({row['float32_epsilon']:.0e}) |")
    return lines


def violations() -> list[str]:
    """Certificates of random configurations: how many bounds were checked, how many do not hold."""
    return _violations(
        "violations", "kind", "optimiser", "target", "precision", "inputs", "activation", "loss", "depth", "all"
    )


def llama_violations() -> list[str]:
    """The same on target llama."""
    return _violations("llama", "variant", "precision", "inputs", "activation", "loss", "depth", "all")


def _violations(part: str, *keys: str) -> list[str]:
    stored = read(f"certificates_{part}")
    lines = ["| | configurations | bounds checked | violated | infinite | bound / error: median | 95% | closest |"]
    lines.append("|---" * 8 + "|")
    for row in [row for key in keys for row in stored[key]]:
        checked = row["entries"] + row["infinite"]
        cells = [row["group"].replace("|", "\\|"), f"{row['configurations']:,}", f"{checked:,}", str(row["violations"])]
        cells += [_percent(row["infinite"] / checked), *(_short(row[key]) for key in ("median", "q95"))]
        lines.append("| " + " | ".join([*cells, f"{row['closest']:.2f}"]) + " |")
    refused: Counter[str] = Counter()
    for row in stored["refused"]:
        refused[row["kind"]] += row["count"]
    counts = ", ".join(f"{count:,} of kind *{kind}*" for kind, count in refused.most_common())
    lines += ["", f"Refused, in a sentence: {counts}. Overflowed, in a sentence: {stored['overflowed']:,}."]
    return lines


def roundings() -> list[str]:
    """How exactly libraries evaluate elementary functions."""
    double, single = read("roundings_float64"), read("roundings_float32")
    exactly = {row["function"]: row["ulp"] for row in single["rows"]}
    lines = [f"| units in the last place, at most | float64, {double['points']:,} numbers | float32, all numbers |"]
    lines.append("|---" * 3 + "|")
    lines += [f"| {row['function']} | {row['ulp']:.2f} | {exactly[row['function']]:.2f} |" for row in double["rows"]]
    return lines


def violated() -> list[str]:
    """The same in one sentence."""
    stored = read("certificates_violations")
    row, refused = stored["all"][0], sum(row["count"] for row in stored["refused"])
    checked = f"{row['entries']:,} finite bounds on {row['configurations']:,} configurations"
    text = f"{checked} ({refused} were refused), **{row['violations']} violated**; bound / error of a step: median "
    return [f"{text}{_short(row['median'])}, 95% below {_short(row['q95'])}."]


def certified() -> list[str]:
    """For the README: all of them, target llama included."""
    rows = [read(name)["all"][0] for name in ("certificates_violations", "certificates_llama")]
    entries, configurations, violated = (
        sum(row[key] for row in rows) for key in ("entries", "configurations", "violations")
    )
    return [f"{entries:,} finite bounds on {configurations:,} random configurations: **{violated} violated**."]


def ratios() -> list[str]:
    """A few of the rows of the next table."""
    head = ["N, K", "paper, as printed", "corrected", "radii only", "from sup errors", "certificate", "seconds"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in read("certificates_tightness")["tightness"]:
        if row["epsilon"] == 1e-3 and (row["N"], row["K"]) in ((2, 8), (3, 8), (4, 16), (4, 32), (6, 32)):
            cells = [
                f"{row['N']}, {row['K']}",
                *(_short(row[key]) for key in ("printed", "corrected_norms", "entrywise")),
            ]
            cells += [f"{_short(row[key])} ({_short(row[f'{key}_max'])})" for key in ("sup", "pointwise")]
            lines.append("| " + " | ".join([*cells, f"{row['seconds']:.2g}"]) + " |")
    return lines


def tightness() -> list[str]:
    """Bound over error of one gradient: the theorems, radii without symbols, and the certificates."""
    stored = read("certificates_tightness")
    head = ["N, K", "error", "printed", "corrected, rows", "corrected, ‖V‖", "radii only", "`sup`", "`pointwise`"]
    lines = ["| " + " | ".join([*head, "`sup` at 1e-5", "seconds"]) + " |", "|---" * 10 + "|"]
    fine = {(row["N"], row["K"]): row for row in stored["tightness"] if row["epsilon"] == 1e-5}
    for row in (row for row in stored["tightness"] if row["epsilon"] == 1e-3):
        cells = [f"{row['N']}, {row['K']}" if row["N"] > 1 else "1", f"{row['error']:.0e}"]
        cells += [_short(row[key]) for key in ("printed", "corrected_rows", "corrected_norms", "entrywise")]
        cells += [f"{_short(row[key])} ({_short(row[f'{key}_max'])})" for key in ("sup", "pointwise")]
        same = fine[row["N"], row["K"]]
        cells += [f"{_short(same['sup'])} ({_short(same['sup_max'])})", f"{row['seconds']:.2g}"]
        lines.append("| " + " | ".join(cells) + " |")
    time, rows = stored["timing"][0], stored["tightness"]
    largest = []
    for mode in ("sup", "pointwise"):
        ratio, N, K, epsilon = max((row[f"{mode}_max"], row["N"], row["K"], row["epsilon"]) for row in rows)
        largest.append(f"`{mode}` {ratio:.0f} (N = {N}, K = {K}, epsilon = {epsilon:.0e})")
    alone = f"N = {time['N']}, K = {time['K']}, n = {time['n']} by itself takes {time['least']:.2g} s on one core."
    return [*lines, "", f"The largest of all {10 * len(rows)} ratios: {', '.join(largest)}. {alone}"]


def other_losses() -> list[str]:
    """Bound over error for every smooth activation and loss: the largest median, and the largest of all."""
    rows = read("certificates_tightness")["others"]
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    lines = ["| | " + " | ".join(losses) + " |", "|---" * (len(losses) + 1) + "|"]
    for activation in dict.fromkeys(row["activation"] for row in rows):
        cells = []
        for loss in losses:
            group = [row for row in rows if (row["activation"], row["loss"]) == (activation, loss)]
            cells.append(" / ".join(_short(max(row[key] for row in group)) for key in ("sup", "sup_max")))
        lines.append(f"| {activation} | " + " | ".join(cells) + " |")
    return lines


def trajectories() -> list[str]:
    """Bound over distance after 100 steps."""
    lines = ["| N | epsilon | lr | distance | `sup`: median | largest | `pointwise`: median | largest | diverged |"]
    lines.append("|---" * 9 + "|")
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in read("certificates_trajectory")["trajectory"]:
        cells.setdefault((row["N"], row["epsilon"], row["lr"]), {})[row["errors"]] = row
    for (N, epsilon, lr), modes in cells.items():
        ratios = " | ".join(_short(modes[mode][key]) for mode in ("sup", "pointwise") for key in ("median", "max"))
        ends = ", ".join(
            f"{row['diverged']} of 10 (`{mode}`), from step {row['first_diverged']}"
            for mode, row in modes.items()
            if row["diverged"]
        )
        lines.append(f"| {N} | {epsilon:.0e} | {lr} | {modes['sup']['distance']:.1e} | {ratios} | {ends or 'none'} |")
    return lines


def llama_trajectories() -> list[str]:
    """Bounds on whole paths on target llama."""
    lines = [
        "| data | network | examples | lr | steps | distance | bound | bound / distance |",
        "|---" * 8 + "|",
    ]
    for row in read("certificates_llama_trajectory")["trajectory"]:
        ended = "infinite" if row["bound"] is None else f"{row['bound']:.1e}"
        ended += f", from step {row['diverged']}" if row["diverged"] else ""
        cells = [row["data"], ", ".join(map(str, row["sizes"])), row["n"], row["lr"], f"{row['steps']:,}"]
        cells += [f"{row['distance']:.1e}", ended, _short(row["ratio"])]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def attacks() -> list[str]:
    """The worst errors that ascent finds, beside the bounds: activations over all losses, and tanh by depth."""
    lines = ["| network | worst / median error | error / certificate | whole domain / worst | violated |"]
    lines.append("|---" * 5 + "|")
    rows, groups = read("certificates_attack")["attack"], dict[str, list[dict[str, Any]]]()
    for row in rows:
        name = (
            f"tanh, squared, N = {row['N']}, K = {row['K']}" if row["K"] > 4 else f"{row['activation']}, N = 2, K = 4"
        )
        groups.setdefault(name, []).append(row)
    for name, group in groups.items():
        worst = [row["error"] / row["median"] for row in group if row["median"]]
        wide = [row["domainwide"] / row["error"] for row in group]
        unknown = sum(row["certificate"] is None for row in group)
        closest = f"{max(row['closest'] for row in group):.0%}" + (", inf at the worst" if unknown else "")
        cells = [_span(worst), closest, _span(wide), str(sum(len(row["violations"]) for row in group))]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _span(values: list[float]) -> str:
    low, high = (f"{value:,.0f}" if value < 1e4 else _short(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _short(value: float | None) -> str:
    """A ratio: three digits, or a power of ten."""
    if value is None:
        return "inf"
    if value >= 1e4:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return "0" if share == 0 else f"{share:.1%}"


TABLES: dict[str, Callable[[], list[str]]] = {
    "gradient_error": gradient_error,
    "outputs": outputs,
    "more_outputs": more_outputs,
    "ramps": ramps,
    "ramp_rounding": ramp_rounding,
    "pieces": pieces,
    "constructions": constructions,
    "stock": stock,
    "depth": depth,
    "targets": targets,
    "softmax": softmax,
    "lookup": lookup,
    "sigma": sigma,
    "decay": decay,
    "violations": violations,
    "llama_violations": llama_violations,
    "roundings": roundings,
    "violated": violated,
    "certified": certified,
    "ratios": ratios,
    "tightness": tightness,
    "other_losses": other_losses,
    "trajectories": trajectories,
    "llama_trajectories": llama_trajectories,
    "attacks": attacks,
    **products.TABLES,
    **variants.TABLES,
    **optimisers.TABLES,
    **executor_tables.TABLES,
    **lab_tables.TABLES,
    **llama_tables.TABLES,
    **settings_tables.TABLES,
    **table_prior.TABLES,
    **abilities_tables.TABLES,
    **coverage_tables.TABLES,
    **architecture.TABLES,
    **reliability_tables.TABLES,
    **deep.TABLES,
    **llama_cost.TABLES,
    **llama_families.TABLES,
    **digits.TABLES,
    **reproduction_tables.TABLES,
    "functional_theorems": functional_theorems.table,
    "functional_rotations": functional_rotations.table,
    **diffusion.TABLES,
    **score_learner.TABLES,
    **real_pages.TABLES,
    **real_limits.TABLES,
    "from_compiled": from_compiled.table,
    "table_ablation": table_ablation.table,
    "table_many_classes": table_many_classes.table,
    "table_blanks": table_blanks.table,
    "table_categories": table_categories.table,
    "table_times": table_times.table,
    "zoo": zoo.table,
    "zoo_tables": tables_learner_zoo.table,
}
PAGES = (
    "README.md",
    "docs/error.md",
    "docs/constructions.md",
    "docs/reference/constructions.md",
    "docs/reference/llama.md",
    "docs/certificates.md",
    "docs/reference/certificates.md",
    "docs/products.md",
    "docs/variants.md",
    "docs/optimisers.md",
    "docs/reference/executor.md",
    "docs/lab.md",
    "docs/settings.md",
    "docs/reference/table_prior.md",
    "docs/reference/estimators.md",
    "docs/extending.md",
    "docs/architecture.md",
    "docs/reliability.md",
    "docs/reference/reliability.md",
    "docs/questions.md",
    "docs/coverage.md",
    "docs/targets.md",
    "docs/speed.md",
    "docs/reproduction.md",
    "docs/diffusion.md",
    "docs/score_learner.md",
    "docs/reference/diffusion.md",
    "docs/howto/zoo.md",
    "docs/reference/real_tables.md",
    "docs/reference/table_learner.md",
)


def rendered(text: str) -> str:
    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n" + "\n".join(TABLES[match[1]]()) + "\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def draw() -> None:
    """Growth of the gradient error with depth, width, outputs and steps."""
    growth = read("gradient_error")["growth"]
    panels = (
        ("depth", "N", "depth N"),
        ("width", "K", "width K"),
        ("outputs", "d_y", "outputs d_y"),
        ("steps", "step", "step"),
    )
    with figures.new(1, 4, size=(15, 3.8), share_y=True) as (figure, axes):
        for ax, (key, name, label) in zip(axes, panels, strict=True):
            rows = [row for row in growth[key] if row["median"] > 0]  # a linear model has no approximants
            x = [row[name] for row in rows]
            for statistic, color, width in (
                ("median", figures.BLUE, 2.5),
                ("q95", figures.ORANGE, 1.5),
                ("max", figures.GREY, 1.0),
            ):
                ax.plot(x, [row[statistic] for row in rows], "o-", color=color, lw=width, ms=4, label=statistic)
            if key == "steps":
                distance = [row["distance"] for row in rows]
                ax.plot(x, distance, "s--", color=figures.GREEN, ms=4, lw=1.5, label=r"median $\|w-w_{GD}\|$")
                ax.legend()
            if key != "depth":
                ax.set_xscale("log", base=2 if key != "steps" else 10)
            ax.set(xlabel=label, yscale="log")
        axes[0].set_ylabel(r"gradient error / $\epsilon$")
        axes[0].legend()
        figure.suptitle("Error of the in-context gradient, in units of epsilon (tanh, squared loss, epsilon = 1e-3)")
        figures.save(figure, ROOT / "docs" / "growth.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a page is not what the results say")
    check = parser.parse_args().check
    drifted = []
    for name in (*PAGES, reproduction_tables.VERDICTS):
        page = ROOT / name
        text = page.read_text() if page.is_file() else ""
        new = rendered(text) if name in PAGES else reproduction_tables.verdicts()
        if new != text:
            drifted.append(name)
            if not check:
                page.write_text(new)
    if check and drifted:
        sys.exit(f"{', '.join(drifted)}: a table is not what results/ says; run `make docs`")
    if not check:
        draw()


if __name__ == "__main__":
    main()
