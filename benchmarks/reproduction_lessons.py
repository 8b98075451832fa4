"""The table of docs/reproduction.md that says what the experiments showed and the papers do not.

Numbers are those of results/figures. Every lesson requires of them what its words say: if they are measured again and
say something else, the page is not made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import functional_rotations
from _results import read
from checks._require import require
from innergrad.papers import views
from innergrad.papers.catalogue import FIGURES
from innergrad.papers.mixtures import window
from innergrad.papers.views import BEST, ERROR, LEARNER, POOLED

FOLDER = Path(__file__).parent.parent / "results" / "figures"
MIXTURES = ("mixtures-relu", "mixtures-softmax")
Lesson = tuple[str, str, tuple[str, ...]]  # what was learned, the numbers, figures


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def span(values: Iterable[float], digits: int = 2) -> str:
    """1.02 to 1.03: the least and the largest."""
    found = list(values)
    low, high = (f"{value:.{digits}f}" for value in (min(found), max(found)))
    return low if low == high else f"{low} to {high}"


def number(row: dict[str, Any] | None, measure: str, k: int) -> float:
    value = None if row is None else views.at(row, measure, k)
    assert value is not None
    return value


def near_the_posterior() -> Lesson:
    over = [ratio for name in MIXTURES for ratio in stored(name)["numbers"]["error over posterior"].values()]
    require(max(over) < 1.05, "error over posterior", over, "below 1.05")
    words = f"the learner's error is {span(over, 3)} times that of the posterior, at most, with 20 to 50 examples"
    return "A trained learner is nearly the best predictor that there can be.", words, MIXTURES


def no_copy() -> Lesson:
    apart = []
    for one in stored("smooth")["numbers"].values():
        others = dict(one["distance"])
        apart.append(others.pop("posterior") / min(others.values()))
    require(max(apart) < 0.5, "distance to the posterior over the next", apart, "below 0.5")
    words = (
        f"its distance to the posterior is {span(apart)} times that to the nearest of all others, networks among them"
    )
    return "It is no copy of a network that is trained on the prompt.", words, ("smooth",)


def ahead_of_training() -> Lesson:
    shares, sizes = [], FIGURES["mixtures-softmax"].study.sizes["full"]
    for rows in (stored(name)["rows"] for name in MIXTURES):
        for layers in sizes.layers:
            test = {"layers": layers, "w1": 1.0}
            mine, theirs = views.pick(rows, LEARNER, test, layers=layers), views.pick(rows, BEST, test)
            assert mine is not None
            assert theirs is not None
            ks = views.shared(mine, theirs, *window(sizes))
            shares += [number(mine, ERROR, k) / number(theirs, ERROR, k) for k in ks]
    require(max(shares) < 1, "error over that of networks", max(shares), "below 1")
    words = f"its error is {span(shares)} times that of networks trained on the prompt, these at their best epoch"
    return "It knows the family of functions, and so is ahead of training, if nothing is shifted.", words, MIXTURES


def depth_of_networks() -> Lesson:
    one, _, _ = stored("shapes-mixed")["numbers"].values()
    own, *others = one.values()
    require(max(others) < 1.1, "error over posterior at other depths", others, "below 1.1")
    words = f"a learner of 4 layers has {own:.3f} times the posterior's error there, and {span(others, 3)} at 3, 6, 10"
    return "The depth of the networks that make the labels matters little.", words, ("shapes-mixed",)


def mixed_depths() -> Lesson:
    one, mixed, alone = stored("shapes-mixed")["numbers"].values()
    (new,) = (name for name in mixed if name not in alone)
    require(max(alone.values()) < 1.05 and mixed[new] < one[new], "mixed depths", (alone, mixed), "nearly as good")
    words = f"at most {max(alone.values()):.3f} times the error of a learner of one depth; at {new}, new to both, "
    words += f"{mixed[new]:.3f} times the posterior's, where the learner of 4 has {one[new]:.3f}"
    return "One learner of several depths costs next to nothing.", words, ("shapes-mixed",)


def positions() -> Lesson:
    rows = {row["variant"]: row for row in stored("positions")["rows"] if row["by"] == LEARNER}
    late = {name: number(row, POOLED, 75) for name, row in rows.items()}
    gains = {name: late[name] - number(row, POOLED, 50) for name, row in rows.items()}
    require(gains["learned"] < 0 < min(gains["rotary"], gains["none"]), "positions", gains, "learned ones alone fall")
    words = f"R² at 50 examples {span((number(row, POOLED, 50) for row in rows.values()), 3)}; at 75 "
    words += ", ".join(f"{late[name]:.3f} ({name})" for name in ("learned", "rotary", "none"))
    return "Past the longest prompt of training it is positions that fail (softmax attention).", words, ("positions",)


def lambdas() -> Lesson:
    cells = [one for one in stored("linear-noise")["numbers"].values() if one["sigma^2 / tau^2"]]
    over = [one["lambda"][0] / one["sigma^2 / tau^2"] for one in cells]
    clear = sum(one["lambda"][1] > one["sigma^2 / tau^2"] for one in cells)
    require(min(over) > 1, "lambda over sigma²/tau²", over, "above 1")
    words = f"the matching λ is {span(over)} times σ²/τ² in all {len(cells)} cells, beyond its interval in {clear}"
    return "Learners of noisy linear functions shrink a little too much.", words, ("linear-noise",)


def linear_readout() -> Lesson:
    found, told = stored("linear-probes")["numbers"], []
    for target in ("moments", "weights"):
        line, mlp = (found[f"{target}, {readout}, trained"]["error"][0] for readout in ("linear", "mlp"))
        controls = [found[f"{target}, control, {kind}, trained"]["error"][0] for kind in ("linear", "mlp")]
        require(line - mlp < 0.1 * (min(controls) - mlp), f"{target}, linear", (line, mlp, controls), "nearly as good")
        told.append(f"{line:.2f} against {mlp:.2f} ({target}; controls {controls[0]:.2f} and {controls[1]:.2f})")
    words = f"errors of linear probes against MLPs: {', '.join(told)}"
    return "What a learner of linear functions holds is nearly linear to read.", words, ("linear-probes",)


def expressing_is_not_learning() -> Lesson:
    _, gains, _, _ = stored("balls")["findings"]
    smooth = next(one for one in stored("smooth")["findings"] if "depth gains" in one["claim"])
    require(not gains["holds"] and not smooth["holds"], "gains of depth", (gains, smooth), "no such order")
    words = f"{gains['words'].partition(': ')[0]}: {gains['words'].partition(': ')[2].replace(';', ',')}"
    return "What depth lets networks express is not what it lets them learn.", words, ("balls", "smooth")


def complex_steps() -> Lesson:
    told = []
    for row in read(functional_rotations.NAME)["rows"]:
        if any(imaginary for _, imaginary in row["free"]):
            require(max(row["curvature"]) < 0.0, f"{row['kernel']}, curvature", row["curvature"], "below zero")
            best, trained = (", ".join(f"{value:.2f}" for value in row[name]) for name in ("distances", "trained"))
            told.append(f"{row['kernel']} labels: the best weights are {best} from these, training ends at {trained}")
    words = f"{'; '.join(told)} ([why](#why-two-pairs-of-figure-5-leave-the-predicted-weights))"
    return (
        "Linear attention leaves the weights that Theorem 4.5 predicts where these are a saddle.",
        words,
        ("identity",),
    )


LESSONS = (
    near_the_posterior,
    no_copy,
    ahead_of_training,
    depth_of_networks,
    mixed_depths,
    positions,
    lambdas,
    linear_readout,
    complex_steps,
    expressing_is_not_learning,
)


def lessons() -> list[str]:
    lines = ["| what the papers do not say | numbers | figures |", "|---|---|---|"]
    for statement, words, names in (lesson() for lesson in LESSONS):
        links = ", ".join(f"[{name}](#{name})" for name in names)
        lines.append(f"| {statement} | {words} | {links} |")
    return lines


TABLES = {"reproduction_lessons": lessons}
