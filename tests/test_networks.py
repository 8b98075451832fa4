"""Networks: layout of the weights, the exact forward pass, zero padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import innergrad as ig

TORCH = {
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "softplus": nn.Softplus(threshold=1e9),
    "gelu": nn.GELU(),
    "silu": nn.SiLU(),
    "relu": nn.ReLU(),
    "leaky_relu": nn.LeakyReLU(0.01),
    "relu6": nn.ReLU6(),
}


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6), st.booleans())
def test_flatten_is_the_inverse_of_unflatten(sizes: list[int], bias: bool) -> None:
    net = ig.Network(sizes, bias=bias)
    w = torch.randn(3, net.n_weights, dtype=torch.float64)
    assert torch.equal(net.flatten(net.unflatten(w)), w)
    assert [V.shape[1:] for V, _ in net.unflatten(w)] == list(zip(sizes[1:], sizes, strict=False))


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("output", ["linear", "activation"])
def test_forward_is_torch_sequential(name: str, output: str) -> None:
    net = ig.Network([3, 5, 4, 2], name, output)
    w = net.init(0) + 0.1
    model = nn.Sequential(nn.Linear(3, 5), TORCH[name], nn.Linear(5, 4), TORCH[name], nn.Linear(4, 2)).double()
    nn.utils.vector_to_parameters(w, model.parameters())  # torch flattens layer by layer, weight before bias, row-major
    X = torch.randn(7, 3, dtype=torch.float64)
    expected = model(X) if output == "linear" else TORCH[name](model(X))
    torch.testing.assert_close(net.forward(w, X), expected, rtol=1e-13, atol=1e-13)


def test_init_has_variance_one_over_fan_in_and_zero_biases() -> None:
    net = ig.Network([400, 300, 1])
    (V1, b1), (V2, b2) = net.unflatten(net.init(1))
    assert abs(float(V1.var()) * 400 - 1) < 0.02
    assert b1 is not None
    assert b2 is not None
    assert not b1.any()
    assert not b2.any()
    assert torch.equal(net.init(1), net.init(1))
    assert not torch.equal(net.init(1), net.init(2))
    assert abs(float(V2.var()) * 300 - 1) < 0.3


def test_extract_is_the_inverse_of_embed() -> None:
    big, small = ig.Network([4, 6, 5, 2], "gelu"), ig.Network([3, 2, 5, 1], "gelu")
    w = torch.randn(2, small.n_weights, dtype=torch.float64)
    assert torch.equal(big.extract(small, big.embed(small, w)), w)
    X = torch.randn(2, 5, 3, dtype=torch.float64)
    padded = torch.nn.functional.pad(X, (0, 1))
    torch.testing.assert_close(
        big.forward(big.embed(small, w), padded)[..., :1], small.forward(w, X), rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize(
    ("big", "small"),
    [
        (ig.Network([3, 4, 1]), ig.Network([3, 5, 1])),
        (ig.Network([3, 4, 1]), ig.Network([3, 1])),
        (ig.Network([3, 4, 1], bias=False), ig.Network([3, 4, 1])),
        (ig.Network([3, 4, 1], "sigmoid"), ig.Network([3, 2, 1], "sigmoid")),
    ],
)
def test_networks_that_do_not_embed_are_refused(big: ig.Network, small: ig.Network) -> None:
    with pytest.raises(ig.InputError, match=r"does not fit|r\(0\) = 0"):
        big.embed(small, small.init(0))


def test_a_deeper_network_that_holds_a_shallower_one_learns_something_else() -> None:
    """A layer that is the identity is trained, too: padding serves several widths, not several depths."""
    generator = torch.Generator().manual_seed(0)
    X, y, X_query = (torch.randn(16, k, generator=generator, dtype=torch.float64) for k in (2, 1, 2))
    shallow, deep = ig.Network([2, 4, 1], "relu"), ig.Network([2, 4, 4, 1], "relu")
    (V1, b1), (V2, b2) = shallow.unflatten(w0 := shallow.init(1))
    start = deep.flatten([(V1, b1), (torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)), (V2, b2)])

    def apart(lr: float) -> float:
        at = ((shallow, w0), (deep, start))
        runs = [ig.reference(ig.GradientDescent(n, lr=lr, steps=1), X, y, X_query, w0=w).predictions for n, w in at]
        return float((runs[0] - runs[1]).abs().max())

    assert apart(1e-12) < 1e-9  # the same network
    assert apart(0.5) > 1e-2
