"""The table of algorithms that every law is tried on, each compiled once in a process and shared by all tests."""

from __future__ import annotations

import numpy as np
import torch

import innergrad as ig
from innergrad.testing import Case
from logistic_regression import LogisticRegression


def gd(
    sizes: list[int], activation: str = "tanh", output: str = "linear", bias: bool = True, **settings: object
) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(sizes, activation, output, bias), **settings)  # type: ignore[arg-type]


def functional(kernel: str | ig.Kernel, **settings: object) -> ig.FunctionalGradientDescent:
    return ig.FunctionalGradientDescent(kernel, **settings)  # type: ignore[arg-type]


POISSON = ig.SmoothLoss("poisson", lambda t, y: (torch.exp(t) - y * t).sum(-1), t_bound=6.0, y_bound=8.0)


def row(
    algorithm: ig.Algorithm,
    epsilon: float | None = None,
    target: str | None = None,
    variant: str | None = None,
    ordered: bool = False,
    z_bound: float | None = None,
    sigma: str | None = None,
    n_examples: int = 9,
    float32: bool = True,
    extensions: tuple[object, ...] = (),
) -> Case:
    options = {"target": target, "variant": variant, "epsilon": epsilon, "z_bound": z_bound, "sigma": sigma}
    return Case(algorithm, {"n_examples": n_examples, **options}, ordered, float32, extensions=extensions)


SIGMA = np.diag([1.0, 0.25, 2.25]) + 0.1
SKEW = 0.2 * np.array([[1.0, 2.0, 0.0], [-1.0, 1.0, 0.5], [0.0, -0.5, 1.0]])
CASES = {
    "tanh, squared": row(gd([3, 4, 4, 2], steps=3), 1e-3),
    "one layer": row(gd([3, 2], bias=False, steps=3), 1e-2),
    "one layer, activated": row(gd([3, 2], "sigmoid", "activation", steps=3), 1e-2),
    "momentum and decay": row(gd([2, 3, 1], "gelu", lr=0.3, steps=4, momentum=0.8, weight_decay=0.1), 1e-2),
    "log-cosh, activated": row(gd([3, 5, 2], "softplus", "activation", loss="log-cosh", steps=2), 1e-2),
    "pseudo-huber": row(gd([2, 3, 2], "silu", loss="pseudo-huber", steps=2), 1e-3),
    "logistic": row(gd([2, 3, 2], "gelu", loss="logistic", steps=2), 1e-2),
    "softmax": row(gd([2, 4, 5], "tanh", loss="softmax", steps=2), 1e-2),
    "tight box": row(gd([2, 3, 1], lr=2.0, steps=4, box=0.3), 1e-2),
    "ball: momentum, l1": row(gd([2, 3, 1], lr=1.0, steps=3, ball=0.75, momentum=0.5, l1=0.01), 1e-3),
    "compact: ball": row(gd([2, 3, 1], lr=1.0, steps=2, ball=0.75), 1e-3, variant="compact"),
    "narrow: ball, decay": row(gd([2, 3, 1], lr=1.0, steps=2, ball=0.75, weight_decay=0.1), 1e-3, variant="narrow"),
    "no box": row(gd([2, 3, 1], steps=2, box=None), 1e-2),
    "sin": row(gd([2, 3, 1], "sin", steps=2), 1e-2, z_bound=16.0),
    "relu": row(gd([3, 4, 4, 1], "relu", steps=3), 1e-3),
    "leaky_relu": row(gd([3, 4, 1], "leaky_relu", steps=3), 1e-3),
    "relu6, activated": row(gd([3, 4, 1], "relu6", "activation", steps=3), 1e-3),
    "N = 6": row(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2),
    "compact: tanh, squared": row(gd([3, 4, 4, 2], steps=2), 1e-3, variant="compact"),
    "compact: activated, N = 2, no bias": row(
        gd([2, 3, 2], "sigmoid", "activation", bias=False, steps=3, lr=2.0, box=0.6), 1e-2, variant="compact"
    ),
    "compact: log-cosh, activated, momentum, decay": row(
        gd([3, 4, 2, 2], "softplus", "activation", loss="log-cosh", steps=2, momentum=0.8, weight_decay=0.1),
        1e-2,
        variant="compact",
    ),
    "compact: relu6, activated": row(gd([3, 4, 3, 1], "relu6", "activation", steps=2), 1e-3, variant="compact"),
    "compact: softmax": row(gd([2, 4, 3], loss="softmax", steps=2), 1e-2, variant="compact"),
    "compact: sin, logistic": row(
        gd([2, 3, 1], "sin", loss="logistic", steps=2), 1e-2, variant="compact", z_bound=16.0
    ),
    "shallow: tanh, N = 2": row(gd([3, 4, 2], steps=2), 1e-3, variant="shallow"),
    "shallow: N = 6": row(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2, variant="shallow"),
    "shallow: silu, activated, momentum, decay": row(
        gd([2, 3, 3, 3, 1], "silu", "activation", steps=2, momentum=0.8, weight_decay=0.1), 1e-2, variant="shallow"
    ),
    "shallow: pseudo-huber, activated, no bias": row(
        gd([2, 3, 3, 1], "tanh", "activation", False, loss="pseudo-huber", steps=2, box=None), 1e-2, variant="shallow"
    ),
    "shallow: relu": row(gd([3, 4, 4, 4, 1], "relu", steps=2), 1e-3, variant="shallow"),
    "a stranger's algorithm": row(LogisticRegression(d=3, steps=5), 1e-3),
    "a stranger's algorithm, placed: gpt": row(LogisticRegression(d=3, steps=3), 1e-6, "gpt"),
    "a stranger's algorithm, placed: softmax": row(LogisticRegression(d=3, steps=3), 1e-6, "softmax"),
    "a stranger's algorithm, placed: sigma": row(LogisticRegression(d=3, steps=3), 1e-5, "sigma"),
    "kernel: linear": row(functional("linear", steps=6, d=3)),
    "kernel: exp, Chebyshev": row(functional("exp", steps=8, step_rule="chebyshev", d=3)),
    "kernel: softmax": row(functional("softmax", steps=5, d=3, d_y=2)),
    "kernel: sum, products, maps": row(
        functional(
            0.5 * ig.Kernel("linear") + ig.Kernel("exp", 1.5, covariance=SIGMA) * ig.Kernel("linear"), d=3, steps=4
        )
    ),
    "kernel: layers of their own": row(
        ig.FunctionalLayers(
            [
                [ig.FunctionalHead("linear", 0.1, -SKEW, SKEW, SIGMA), ig.FunctionalHead("exp", 0.05, 0.1, C=SKEW)],
                [ig.FunctionalHead("softmax", 0.5, B=SKEW[:2], C=SIGMA[:2])],
            ],
            d=3,
            d_y=2,
        )
    ),
    "kernel: covariate steps": row(functional("linear", steps=4, covariate_step=-0.02, d=3)),
    "gpt: tanh, squared": row(gd([2, 3, 3, 2], steps=2), 1e-5, "gpt", z_bound=32.0),
    "gpt raw: logistic, momentum, decay": row(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-6,
        "gpt",
        "raw",
        z_bound=16.0,
    ),
    "gpt: activated, tight box": row(
        gd([2, 3, 1], "sigmoid", "activation", steps=3, lr=2.0, box=0.3), 1e-6, "gpt", z_bound=16.0
    ),
    "gpt: SGD": row(ig.OnlineSGD(d=3, lr=0.1, weight_decay=0.1), 1e-6, ordered=True),
    "gpt raw: SGD": row(ig.OnlineSGD(d=2, lr=0.1), 1e-6, variant="raw", ordered=True),
    "gpt: RLS": row(ig.RecursiveLeastSquares(d=2), 1e-6),
    "gpt raw: RLS": row(ig.RecursiveLeastSquares(d=3, ridge=1.0), 1e-6, variant="raw"),
    "gpt: Sherman-Morrison": row(ig.RecursiveLeastSquares(d=2, form="sherman-morrison"), 1e-6, z_bound=64.0),
    "gpt: nine operations": row(ig.raw.OneStepSGD(3, 0.2, 0.3, (0.5, -1.0, 0.75)), 1e-6, n_examples=1),
    "gpt raw: nine operations": row(ig.raw.OneStepSGD(1, 0.2), 1e-6, variant="raw", n_examples=1),
    "gpt: fourteen operations": row(ig.raw.OneStepRidge(2), 1e-6, n_examples=1),
    "gpt raw: fourteen operations": row(ig.raw.OneStepRidge(2, ridge=1.0), 1e-6, variant="raw", n_examples=1),
    "gpt: heavy sink": row(functional("exp", steps=6, d=3), 1e-6, "gpt"),
    "gpt: layers of their own": row(
        ig.FunctionalLayers(
            [ig.FunctionalHead("softmax", 0.5, -SKEW, SKEW, SKEW), ig.FunctionalHead("exp", 0.05, B=SKEW)], d=3
        ),
        1e-6,
        "gpt",
    ),
    "gpt: linear attention from exp heads": row(functional("linear", steps=4, d=3), 1e-6, "gpt"),
    "softmax, sink: tanh, squared": row(gd([2, 3, 3, 2], steps=2), 1e-5, "softmax", "sink", z_bound=32.0),
    "softmax, sink: logistic, momentum, decay": row(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-5,
        "softmax",
        "sink",
        z_bound=16.0,
    ),
    "softmax, sink: activated, tight box": row(
        gd([2, 3, 1], "sigmoid", "activation", steps=3, lr=2.0, box=0.3), 1e-6, "softmax", "sink", z_bound=16.0
    ),
    "softmax, mean: softplus, pseudo-huber, no bias": row(
        gd([2, 3, 3, 1], "softplus", loss="pseudo-huber", bias=False, steps=2), 1e-6, "softmax", "mean", z_bound=16.0
    ),
    "softmax, lookup": row(
        ig.GridDescent(gd([1, 1], bias=False, steps=2, lr=1.0, box=1.0), grid=2),
        None,
        "softmax",
        "lookup",
        float32=False,
    ),
    "softmax, lookup: bias, decay": row(
        ig.GridDescent(gd([1, 1], loss="squared", steps=1, lr=2.0, box=0.9, weight_decay=0.1), grid=2, y_bound=2.0),
        float32=False,
    ),
    "sigma, gelu: tanh, tight box": row(gd([2, 3, 3, 1], steps=3, lr=2.0, box=0.6), 1e-6, "sigma", z_bound=16.0),
    "sigma, tanh: Theorem 1": row(gd([2, 4, 1], steps=2, box=None), 1e-4, "sigma", z_bound=8.0, sigma="tanh"),
    "sigma, sigmoid: logistic, momentum, decay": row(
        gd([2, 3, 1], "gelu", loss="logistic", steps=2, momentum=0.5, weight_decay=0.1, box=None),
        1e-4,
        "sigma",
        z_bound=8.0,
        sigma="sigmoid",
    ),
    "sigma, softplus: recursion, N = 3": row(
        gd([2, 3, 2, 2], bias=False, steps=2), 1e-4, "sigma", "recursion", z_bound=5.0, sigma="softplus"
    ),
    "sigma, silu: recursion, N = 4": row(
        gd([2, 2, 3, 2, 1], "sigmoid", bias=False, steps=1), 1e-5, "sigma", "recursion", z_bound=12.0, sigma="silu"
    ),
    "sigma, cos: four layers": row(gd([2, 2, 2, 2, 1], steps=1, box=None), 1e-4, "sigma", z_bound=8.0, sigma="cos"),
    "gpt raw: softmax attention": row(functional("softmax", steps=4, d=3), 1e-6, "gpt", "raw"),
    "narrow: tanh, squared, uneven": row(gd([3, 4, 5, 2], steps=2), 1e-3, variant="narrow"),
    "narrow: one layer, activated": row(gd([3, 2], "sigmoid", "activation", steps=2), 1e-2, variant="narrow"),
    "narrow: momentum and decay": row(
        gd([2, 3, 1], "gelu", lr=0.3, steps=3, momentum=0.8, weight_decay=0.1), 1e-2, variant="narrow"
    ),
    "narrow: log-cosh, activated, tight box": row(
        gd([3, 5, 2], "softplus", "activation", loss="log-cosh", steps=2, lr=2.0, box=0.6), 1e-2, variant="narrow"
    ),
    "narrow: logistic, no bias, no box": row(
        gd([2, 3, 2], "silu", bias=False, loss="logistic", steps=2, box=None), 1e-2, variant="narrow"
    ),
    "narrow: softmax": row(gd([2, 4, 5], loss="softmax", steps=2), 1e-2, variant="narrow"),
    "narrow: sin, pseudo-huber": row(
        gd([2, 3, 1], "sin", loss="pseudo-huber", steps=2), 1e-2, variant="narrow", z_bound=16.0
    ),
    "narrow: relu, no bias": row(gd([3, 4, 4, 1], "relu", bias=False, steps=2), 1e-3, variant="narrow"),
    "narrow: relu6, activated": row(gd([3, 4, 1], "relu6", "activation", steps=2), 1e-3, variant="narrow"),
    "narrow: N = 6": row(gd([2, 3, 2, 3, 2, 3, 1], steps=2), 1e-2, variant="narrow"),
    "nesterov, decay, cosine": row(
        gd([2, 3, 2], "gelu", lr=ig.schedules.cosine(0.3, 3), momentum=0.8, nesterov=True, weight_decay=0.1), 1e-3
    ),
    "l1, clip, batches": row(gd([2, 3, 1], lr=0.5, l1=0.1, clip=0.3, batches=ig.minibatches(9, 4)), 1e-3, ordered=True),
    "adam": row(ig.Adam(ig.Network([2, 3, 1]), lr=0.05, steps=2, delta=0.1), 1e-4),
    "compact: adam, clip, cosine": row(
        ig.Adam(ig.Network([2, 3, 1]), lr=ig.schedules.cosine(0.05, 2), delta=0.1, clip=1.0), 1e-4, variant="compact"
    ),
    "shallow: l1, clip, batches": row(
        gd([2, 3, 1], lr=0.5, l1=0.1, clip=0.3, batches=ig.minibatches(9, 4)), 1e-3, variant="shallow", ordered=True
    ),
    "narrow: adam, decay": row(
        ig.Adam(ig.Network([2, 3, 1]), lr=0.05, steps=2, delta=0.1, weight_decay=0.1), 1e-4, variant="narrow"
    ),
    "gpt: nesterov, l1, batches": row(
        gd([2, 2, 1], momentum=0.5, nesterov=True, l1=0.1, lr=(0.4, 0.2), batches=((0, 1, 2), (3, 4, 5, 6))),
        1e-5,
        "gpt",
        ordered=True,
        z_bound=16.0,
    ),
    "poisson": row(gd([2, 3, 1], loss=POISSON, lr=0.02, steps=2), 1e-2, extensions=(POISSON,)),
    "gpt: softmax loss": row(gd([2, 3, 3], loss="softmax", steps=2), 1e-5, "gpt", z_bound=16.0),
    "softmax, sink: relu, softmax loss": row(
        gd([2, 3, 3], "relu", loss="softmax", steps=2, box=None), 1e-6, "softmax", "sink", z_bound=16.0
    ),
    "sigma, gelu: leaky_relu, activated": row(
        gd([2, 3, 2], "leaky_relu", "activation", steps=2), 1e-6, "sigma", z_bound=16.0
    ),
    "softmax, markers: tanh, squared": row(
        gd([2, 3, 2, 1], steps=2, box=None), target="softmax", variant="markers", z_bound=16.0
    ),
    "gpt markers: sigmoid, cross-entropy, tight box": row(
        gd([2, 3, 3], "sigmoid", loss="softmax", steps=2, box=0.5), target="gpt", variant="markers", z_bound=16.0
    ),
    "llama: tanh, squared": row(gd([2, 3, 3, 2], steps=2, box=None), target="llama"),
    "llama wide: N = 4": row(gd([2, 3, 2, 2, 1], steps=2, box=None), target="llama", variant="wide"),
    "llama widest: sigmoid, cross-entropy": row(
        gd([2, 3, 2, 2], "sigmoid", loss="softmax", steps=2, box=None), target="llama", variant="widest"
    ),
    "llama shortest: N = 3": row(gd([2, 2, 3, 1], steps=2, box=None), target="llama", variant="shortest"),
    "llama: one layer": row(gd([3, 2], steps=3, box=None, bias=False), target="llama"),
    "llama: cross-entropy, momentum": row(
        gd([2, 3, 3], "sigmoid", loss="softmax", steps=2, box=None, momentum=0.9, weight_decay=0.1), target="llama"
    ),
    "llama: activated, tight box, l1": row(
        gd([2, 3, 1], "sigmoid", "activation", steps=3, lr=2.0, box=0.3, l1=0.01), target="llama"
    ),
    "llama: gelu, pseudo-huber, by fits": row(
        gd([2, 3, 2], "gelu", loss="pseudo-huber", steps=2), 1e-5, "llama", z_bound=16.0
    ),
    "llama: logistic, batches": row(
        gd([2, 3, 1], loss="logistic", steps=2, box=4.0, batches=[[0, 2], [1, 3, 4]]), target="llama", ordered=True
    ),
}


#: Prompts of 40 examples: one or two rows for each target and variant, and kernels whose steps suit 40 equal examples.
#: (The rows of a lookup table are exponential in the number of examples.)
LONG = {
    name: CASES[name].of(40)
    for name in (
        "tanh, squared",
        "tight box",
        "relu",
        "l1, clip, batches",
        "a stranger's algorithm",
        "compact: softmax",
        "compact: relu6, activated",
        "shallow: tanh, N = 2",
        "shallow: l1, clip, batches",
        "narrow: momentum and decay",
        "narrow: relu, no bias",
        "kernel: softmax",
        "kernel: covariate steps",
        "llama: tanh, squared",
        "gpt: activated, tight box",
        "gpt: nesterov, l1, batches",
        "gpt markers: sigmoid, cross-entropy, tight box",
        "softmax, markers: tanh, squared",
        "gpt raw: logistic, momentum, decay",
        "gpt raw: SGD",
        "gpt raw: softmax attention",
        "softmax, sink: activated, tight box",
        "softmax, mean: softplus, pseudo-huber, no bias",
        "sigma, tanh: Theorem 1",
        "sigma, softplus: recursion, N = 3",
    )
} | {
    "kernel: linear": row(functional("linear", steps=6, d=3, lambda_max=48.0), n_examples=40),
    "kernel: exp, Chebyshev": row(
        functional("exp", steps=8, step_rule="chebyshev", d=3, lambda_max=128.0), n_examples=40
    ),
    "gpt: heavy sink": row(functional("exp", steps=6, d=3, lambda_max=128.0), 1e-6, "gpt", n_examples=40),
    "gpt raw: RLS": row(ig.RecursiveLeastSquares(d=1), 1e-6, variant="raw", n_examples=40),
}
