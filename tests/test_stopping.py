"""``until=``: a run stops by the certified norm of the gradient mapping, and not before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig

N = 6


def descent(**settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 4, 1], "tanh"), **{"lr": 0.5, "steps": 40, **settings})


def examples(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Three prompts, and three initial weights."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(3, N, 2, generator=generator, dtype=torch.float64).clamp(-2, 2)
    y = 0.5 * torch.randn(3, N, 1, generator=generator, dtype=torch.float64)
    return X, y, torch.stack([ig.Network([2, 4, 1], "tanh").init(seed + i) for i in range(3)])


def mapping_norm(algorithm: ig.GradientDescent, w: Tensor, X: Tensor, y: Tensor) -> float:
    """|w - clip(w - lr grad L(w))| / lr, by autograd, L written out."""
    w = w.double().detach().requires_grad_()
    losses = (algorithm.network.forward(w, X) - y).square().sum(-1)
    (gradient,) = torch.autograd.grad(losses.mean() / 2, w)
    after = w.detach() - algorithm.lr * gradient
    after = after if algorithm.box is None else after.clamp(-algorithm.box, algorithm.box)
    return float((w.detach() - after).norm()) / algorithm.lr


@pytest.mark.parametrize(
    ("target", "epsilon", "box"),
    [("relu", 1e-3, 4.0), ("relu", 1e-3, 0.5), ("relu", 1e-3, None), ("gpt", 1e-9, 4.0), ("sigma", 1e-6, None)],
)
def test_the_true_norm_is_at_most_until(target: str, epsilon: float, box: float | None) -> None:
    algorithm = descent(box=box)
    tf = ig.compile(algorithm, target=target, epsilon=epsilon, n_examples=N)
    X, y, w0 = examples()
    w0 = w0 if box is None else w0.clamp(-box, box)
    run = tf.run(X, y, X, w0=w0, until=0.1)
    assert isinstance(run.stopped, tuple)
    found = [number for number in run.stopped if number is not None]
    assert len(found) >= 2
    assert max(found) > 0
    for i, number in enumerate(run.stopped):
        last = run.weights[i, -1]
        if number is not None:
            assert mapping_norm(algorithm, last, X[i], y[i]) <= 0.1
            assert torch.equal(run.weights[i, number:], last.expand(run.weights.shape[1] - number, -1))
        torch.testing.assert_close(
            run.predictions[i], algorithm.network.forward(last, X[i]), atol=20 * epsilon, rtol=0.0
        )


def test_it_stops_at_the_first_weights_that_are_certified() -> None:
    """Before them the certified norm is too large; it is the step over lr and the certificate over lr."""
    algorithm = descent()
    tf, (X, y, w0) = ig.compile(algorithm, n_examples=N), examples()
    full, certificate = tf.run(X[0], y[0], w0=w0[0]).weights, tf.certify(X[0], y[0], w0=w0[0], trajectory=False)
    norms = (full[1:] - full[:-1]).norm(dim=-1) / algorithm.lr + torch.tensor(certificate.gradient)
    for until in (0.2, 0.1, 0.08):
        expected = next(number for number, norm in enumerate(norms.tolist()) if norm <= until)
        run = tf.run(X[0], y[0], w0=w0[0], until=until)
        assert run.stopped == expected
        assert torch.equal(run.weights, full[: expected + 1])


def test_a_cap_that_is_reached_says_so() -> None:
    tf, (X, y, w0) = ig.compile(descent(steps=2), n_examples=N), examples()
    run, full = (tf.run(X[0], y[0], X[0], w0=w0[0], until=until) for until in (1e-3, None))
    assert run.stopped is None
    assert run.weights.shape[0] == 3
    assert torch.equal(run.weights, full.weights)
    assert torch.equal(run.predictions, full.predictions)


@pytest.mark.parametrize("executor", ["plain", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_prompt_stops_by_itself(executor: Any, dtype: torch.dtype) -> None:
    """What it learns does not depend on the other prompts of its batch."""
    algorithm = descent()
    tf, (X, y, w0) = ig.compile(algorithm, n_examples=N), examples()
    X, y, w0 = (part.to(dtype) for part in (X, y, w0))
    together = tf.run(X, y, X, w0=w0, until=0.1, executor=executor, dtype=dtype)
    assert isinstance(together.stopped, tuple)
    assert len(set(together.stopped)) > 1
    for i in range(3):
        alone = tf.run(X[i], y[i], X[i], w0=w0[i], until=0.1, executor=executor, dtype=dtype)
        assert alone.stopped == together.stopped[i]
        close: dict[str, Any] = {"atol": 1e-5 if dtype == torch.float32 else 1e-12, "rtol": 0.0}
        torch.testing.assert_close(alone.weights[-1], together.weights[i, -1], **close)
        torch.testing.assert_close(alone.predictions, together.predictions[i], **close)
        assert mapping_norm(algorithm, alone.weights[-1], X[i].double(), y[i].double()) <= 0.1


def test_weighted_examples() -> None:
    """An example of weight zero is none: it neither delays nor hastens."""
    tf, (X, y, w0) = ig.compile(descent(), n_examples=N), examples()
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    weighted = tf.run(X[0], y[0], w0=w0[0], sample_weight=weight, until=0.1)
    fewer = tf.run(X[0, :4], y[0, :4], w0=w0[0], until=0.1)
    assert weighted.stopped == fewer.stopped is not None
    torch.testing.assert_close(weighted.weights, fewer.weights, atol=1e-12, rtol=0.0)


def test_it_is_compiled_saved_and_overridden(tmp_path: Path) -> None:
    tf, (X, y, w0) = ig.compile(descent(), n_examples=N, until=0.1), examples()
    loaded = ig.load(tf.save(tmp_path / "model"))
    assert loaded.options.until == 0.1
    by_default = loaded.run(X[0], y[0], w0=w0[0])
    plain = replace(tf, options=replace(tf.options, until=None))
    assert by_default.stopped == plain.run(X[0], y[0], w0=w0[0], until=0.1).stopped is not None
    assert loaded.run(X[0], y[0], w0=w0[0], until=0.0).stopped is None
    assert plain.run(X[0], y[0], w0=w0[0]).weights.shape[0] == 41


@pytest.mark.parametrize(
    ("algorithm", "until", "message"),
    [
        (descent(momentum=0.5), 0.1, "without momentum"),
        (descent(weight_decay=0.5), 0.1, "without momentum"),
        (descent(lr=0.0), 0.1, "lr > 0"),
        (ig.OnlineSGD(d=2), 0.1, "gradient mapping"),
        (descent(), -0.1, "until must be a finite number, at least 0"),
        (descent(), "small", "until must be"),
        (descent(), float("nan"), "until must be"),
    ],
)
def test_what_it_is_not_for(algorithm: ig.Algorithm, until: Any, message: str) -> None:
    with pytest.raises(ig.InputError, match=message):
        ig.compile(algorithm, n_examples=N, until=until)
    tf, (X, y, _) = ig.compile(algorithm, n_examples=N), examples()
    with pytest.raises(ig.InputError, match=message):
        tf.run(X[0] / 4, y[0] / 4, until=until)


def test_nothing_is_certified_outside_the_domain() -> None:
    tf, (X, y, w0) = ig.compile(descent(), n_examples=N), examples()
    with pytest.raises(ig.InputError, match="certificate, which holds inside the domain"):
        tf.run(X[0], y[0], w0=w0[0], until=0.1, outside="flag")
