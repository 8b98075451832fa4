"""Stored results of certificates.py: what the pages claim of the certificates."""

from __future__ import annotations

from _judge import ACTIVATIONS, KINDS, LOSSES
from _results import read
from checks._require import equal, require


def no_certificate_is_violated() -> None:
    stored, file = read("certificates_violations"), "results/certificates_violations.json"
    require(stored["configurations"] >= 10_000, f"{file}, configurations", stored["configurations"], "at least 10,000")
    equal(f"{file}, violations", stored["violations"], [])
    equal(f"{file}, failed", stored["failed"], [])
    require(stored["oracles_apart"] < 1e-12, f"{file}, oracles_apart", stored["oracles_apart"], "less than 1e-12")
    expected = {
        "kind": set(KINDS),
        "optimiser": {"gradient descent", "momentum", "Nesterov", "Adam"},
        "target": {"relu", "gpt", "softmax", "sigma"},
        "loss": set(LOSSES),
        "depth": {f"N = {N}" for N in range(1, 7)},
    }
    for key, groups in expected.items():
        missing = groups - {row["group"] for row in stored[key]} - {"hostile"}  # which may all be refused
        equal(f"{file}, groups of {key} that are missing", missing, set())
    refused = sum(row["count"] for row in stored["refused"] if row["kind"] in ("descent", "honest"))
    require(refused < 0.02 * stored["configurations"], f"{file}, refused", refused, "less than 2%")
    row = stored["all"][0]
    infinite, median = row["with_infinite"] / row["configurations"], row["median"]
    require(infinite <= 0.05, f"{file}, configurations without a finite bound", infinite, "at most 5%")
    require(median <= 8.7, f"{file}, median of bound / error", median, "at most 8.7")


def certificates_are_as_tight_as_claimed() -> None:
    """tanh and the squared loss, N <= 6, K <= 32: `pointwise` within 60, and `sup` in the median; medians within 100
    for all others; one second.
    """
    stored, file = read("certificates_tightness"), "results/certificates_tightness.json"
    shapes, wanted = {(row["N"], row["K"]) for row in stored["tightness"]}, [4, 8, 16, 32]
    missing = {(N, K) for N in range(2, 7) for K in wanted} - shapes
    equal(f"{file}, tightness, missing (N, K)", missing, set())
    for row in stored["tightness"]:
        where = f"{file}, tightness, N = {row['N']}, K = {row['K']}, epsilon = {row['epsilon']}"
        least, largest = row["least"], row["pointwise_max"]
        require(1.0 <= least <= largest, f"{where}, least", least, "at least 1 and at most pointwise_max")
        require(largest <= 60.0, f"{where}, pointwise_max", largest, "at most 60")
        require(row["sup"] <= 60.0, f"{where}, sup", row["sup"], "at most 60")
    kinds = {(row["activation"], row["loss"]) for row in stored["others"]}
    equal(f"{file}, others, pairs of activation and loss", len(kinds), 30)
    for row in stored["others"]:
        where = f"{file}, others, {row['activation']}, {row['loss']}"
        require(row["least"] >= 1.0, f"{where}, least", row["least"], "at least 1")
        require(row["sup"] <= 100.0, f"{where}, sup", row["sup"], "at most 100")
    seconds = stored["timing"][0]["least"]
    require(seconds <= 1.0, f"{file}, timing, least", seconds, "at most 1 second")


def no_attack_breaks_a_certificate() -> None:
    rows, file = read("certificates_attack")["attack"], "results/certificates_attack.json"
    equal(f"{file}, activations", {row["activation"] for row in rows}, set(ACTIVATIONS))
    equal(f"{file}, losses", {row["loss"] for row in rows}, set(LOSSES))
    for row in rows:
        where = f"{file}, {row['activation']}, {row['loss']}, N = {row['N']}, K = {row['K']}"
        equal(f"{where}, violations", row["violations"], [])
        require(row["closest"] <= 1.0, f"{where}, closest", row["closest"], "at most 1")
        require(row["error"] <= row["domainwide"], f"{where}, error", row["error"], "at most domainwide")


def trajectories_are_as_tight_as_claimed() -> None:
    """Within 300 times the distance after 100 steps, N <= 3, epsilon = 1e-5: of errors at the arguments for both
    learning rates, of sup errors for the smaller one, and for the larger one in the median.
    """
    file = "results/certificates_trajectory.json"
    for row in read("certificates_trajectory")["trajectory"]:
        where = f"{file}, N = {row['N']}, epsilon = {row['epsilon']}, lr = {row['lr']}, {row['errors']}"
        equal(f"{where}, violations", row["violations"], 0)
        if row["epsilon"] == 1e-5:
            equal(f"{where}, diverged", row["diverged"], 0)
            require(row["median"] <= 300.0, f"{where}, median", row["median"], "at most 300")
            if row["errors"] == "pointwise" or row["lr"] == 0.05:
                require(row["max"] <= 300.0, f"{where}, max", row["max"], "at most 300")


def long_paths_on_llama_are_bounded() -> None:
    """The demo's: 1,000 steps at a rate of 0.1, 300 at 0.5, at most 1e-3. None is violated."""
    rows, file = read("certificates_llama_trajectory")["trajectory"], "results/certificates_llama_trajectory.json"
    found = {(row["data"], row["lr"], row["steps"], row["seed"]): row["bound"] for row in rows}
    for cell in (("diabetes", 0.1, 1000, 0), ("diabetes", 0.5, 300, 0)):
        bound = found.get(cell)
        require(bound is not None and bound <= 1e-3, f"{file}, {cell}, bound", bound, "at most 1e-3")
    equal(f"{file}, violations", [row for row in rows if row["violations"]], [])


def no_certificate_on_llama_is_violated() -> None:
    stored, file = read("certificates_llama"), "results/certificates_llama.json"
    require(stored["configurations"] >= 2_000, f"{file}, configurations", stored["configurations"], "at least 2,000")
    equal(f"{file}, violations", stored["violations"], [])
    equal(f"{file}, failed", stored["failed"], [])


CHECKS = (
    long_paths_on_llama_are_bounded,
    no_certificate_on_llama_is_violated,
    no_certificate_is_violated,
    certificates_are_as_tight_as_claimed,
    no_attack_breaks_a_certificate,
    trajectories_are_as_tight_as_claimed,
)
