"""Stored results of diffusion.py: scores that are learned in context."""

from __future__ import annotations

from _results import read
from checks._require import near, require
from innergrad.diffusion.study import CONTEXT, DIRECT

FILE = "results/diffusion.json"
KEYS = ("name", "activation", "prompt")
NEAR, SHARE = 1e-3, 0.2  # of the scores; of the way from the exact score to noise


def in_context_equals_direct_training() -> None:
    """Scores within 1e-3, root mean square, in float32, or as near as direct training is to itself with the examples in
    another order; errors and losses to three digits.
    """
    stored = read("diffusion")
    own = {tuple(one[key] for key in KEYS): max(one["orders"]) for one in stored["orders"]}
    for one in (*stored["studies"], *stored["seeds"]):
        where = f"{FILE}, {one['name']}, {one['activation']}, {one['prompt']}, seed {one['seed']}"
        limit = max(NEAR, own[tuple(one[key] for key in KEYS)])
        require(
            one["score_difference"] < limit, f"{where}, score_difference", one["score_difference"], f"below {limit}"
        )
        error = one["relative_error"]
        near(f"{where}, relative_error", error[CONTEXT], error[DIRECT], rel=5e-4)
        near(f"{where}, loss", one["loss"], one["loss_direct"], rel=5e-4)


def rounding_is_all_that_differs() -> None:
    """In float64 every network with a smooth activation, and the one above 1e-3 in float32, agrees to 1e-12."""
    for one in read("diffusion")["orders"]:
        if one["activation"] != "relu" or max(one["orders"]) > NEAR:
            where = f"{FILE}, orders, {one['name']}, {one['activation']}, {one['prompt']}, float64"
            require(one["float64"] < 1e-12, where, one["float64"], "below 1e-12")


def eight_gaussians_are_sampled() -> None:
    """With a ReLU network and true scores: at most a fifth of the way to noise, by both distances, for every seed."""
    stored = read("diffusion")
    for one in (*stored["studies"], *stored["seeds"]):
        if (one["name"], one["activation"], one["prompt"]) == ("eight-gaussians", "relu", "true"):
            for what, shares in one["on_the_scale"].items():
                where = f"{FILE}, eight-gaussians, seed {one['seed']}, {what}"
                require(shares[CONTEXT] <= SHARE, where, shares[CONTEXT], f"at most {SHARE}")


def certificates_hold() -> None:
    """Scores are as near to exact gradient descent as was proven. The training beside them rounds, too: twice."""
    for one in read("diffusion")["certificates"]:
        if one["score"] is not None:
            where = f"{FILE}, certificates, {one['activation']}, {one['steps']} steps"
            require(one["score_apart"] <= 2 * one["score"], where, one["score_apart"], f"at most 2 x {one['score']}")


CHECKS = (
    in_context_equals_direct_training,
    rounding_is_all_that_differs,
    eight_gaussians_are_sampled,
    certificates_hold,
)
