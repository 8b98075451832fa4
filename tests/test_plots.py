"""Plots show the numbers that the objects have, and losses are the algorithm's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

import innergrad as ig
from innergrad.errors import InputError
from innergrad.files import made_by
from innergrad.lab import evaluate
from innergrad.lab.baselines import LeastSquares, Mean
from innergrad.lab.tasks import Linear

STEPS, RATE = 6, 0.4
NETWORK = ig.Network([2, 4, 1])


def data(batch: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.randn(*batch, 8, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return X, torch.sin(X.sum(-1, keepdim=True))


@pytest.fixture(scope="module")
def tf() -> ig.CompiledTransformer:
    return ig.compile(ig.GradientDescent(NETWORK, lr=RATE, steps=STEPS), n_examples=8)


def drawn(figure: Figure) -> dict[str, list[float]]:
    """Label of a line -> its values."""
    return {str(line.get_label()): list(line.get_ydata()) for ax in figure.axes for line in ax.get_lines()}


# ---------------------------------------------------------------------------------------------------------------- loss


def by_autograd(X: torch.Tensor, y: torch.Tensor, w0: torch.Tensor) -> list[float]:
    """Losses of plain gradient descent, written down here: 1/(2n) sum of squares."""
    w, found = w0.clone().requires_grad_(), []
    for _ in range(STEPS + 1):
        loss = 0.5 * (NETWORK.forward(w, X) - y).square().mean()
        found.append(loss.item())
        (gradient,) = torch.autograd.grad(loss, w)
        w = (w - RATE * gradient).detach().requires_grad_()
    return found


def test_the_loss_is_that_of_training(tf: ig.CompiledTransformer) -> None:
    X, y = data()
    run, expected = tf.run(X, y), by_autograd(X, y, NETWORK.init(0))
    assert run.exact_loss.tolist() == pytest.approx(expected, rel=1e-12)
    assert ig.reference(tf.algorithm, X, y).loss.tolist() == pytest.approx(expected, rel=1e-12)
    assert run.loss.shape == (STEPS + 1,)
    assert run.loss.tolist() == pytest.approx(expected, abs=1e-3)
    assert run.loss.tolist() != run.exact_loss.tolist()  # it is the transformer's, epsilon away
    assert run.loss[-1] < 0.8 * run.loss[0]


def test_the_loss_counts_sample_weights(tf: ig.CompiledTransformer) -> None:
    X, y = data()
    weighted = tf.run(X, y, sample_weight=[2.0] + [1.0] * 6 + [0.0]).loss
    doubled = tf.run(torch.cat([X[:1], X[:7]]), torch.cat([y[:1], y[:7]])).loss
    assert torch.allclose(weighted, doubled, atol=1e-12)
    assert not torch.allclose(weighted, tf.run(X, y).loss, atol=1e-4)


def test_losses_of_a_batch_and_of_recorded_steps(tf: ig.CompiledTransformer) -> None:
    X, y = data((3,))
    run = tf.run(X, y)
    assert run.loss.shape == (3, STEPS + 1)
    for number in range(3):
        assert torch.allclose(run.loss[number], tf.run(X[number], y[number]).loss, atol=1e-12)
    some = tf.run(X, y, record=4)
    assert some.recorded == (0, 4, 6)
    assert torch.allclose(some.loss, run.loss[:, [0, 4, 6]], atol=1e-12)
    assert torch.allclose(some.exact_loss, run.exact_loss[:, [0, 4, 6]], atol=1e-12)


def test_the_loss_of_functional_descent_falls_as_its_residuals_do() -> None:
    """It trains no weights: the loss comes from the stream."""
    X, y = data()
    functional = ig.FunctionalGradientDescent("exp", steps=5, d=2, lambda_max=500)
    run = ig.compile(functional, n_examples=8).run(X, y)
    K, step = torch.exp(X @ X.T), 1.9 / 500
    residual, expected = y.clone(), [0.5 * float(y.square().mean())]
    for _ in range(5):
        residual = residual - step * K @ residual
        expected.append(0.5 * float(residual.square().mean()))
    assert run.loss.tolist() == pytest.approx(expected, rel=1e-10)
    assert run.exact_loss.tolist() == pytest.approx(expected, rel=1e-10)


def test_a_run_of_nothing_says_so() -> None:
    with pytest.raises(InputError, match="has no record of its examples"):
        ig.Run(torch.zeros(1, 1), torch.zeros(1, 1)).plot()


# --------------------------------------------------------------------------------------------------------------- plots


def test_the_plot_of_a_run_shows_both_losses(tf: ig.CompiledTransformer, tmp_path: Path) -> None:
    run = tf.run(*data())
    shown = drawn(run.plot(tmp_path / "new" / "run.png"))
    assert shown == {
        "the algorithm itself": pytest.approx(run.exact_loss.tolist()),
        "in context (transformer)": pytest.approx(run.loss.tolist()),
    }
    assert made_by(tmp_path / "new" / "run.png") == "plot"
    assert list(drawn(run.plot(exact=False))) == ["in context (transformer)"]
    batch = tf.run(*data((3,)))
    assert drawn(batch.plot())["in context (transformer)"] == pytest.approx(batch.loss.mean(0).tolist())


def test_the_plot_of_a_certificate_shows_bounds_above_the_distance(tf: ig.CompiledTransformer, tmp_path: Path) -> None:
    X, y = data()
    certificate, exact = tf.certify(X, y), ig.reference(tf.algorithm, X, y)
    distance = certificate.distance(exact)
    assert distance == pytest.approx((tf.run(X, y).weights - exact.weights).norm(dim=-1)[1:].tolist(), rel=1e-6)
    assert all(a <= b for a, b in zip(distance, certificate.weights, strict=True))
    figure = certificate.plot(exact, tmp_path / "certificate.png")
    shown = drawn(figure)
    assert shown["the same distance, measured"] == pytest.approx(distance)
    assert shown["distance of the weights to the exact ones: proven bound"] == pytest.approx(certificate.weights)
    assert shown["error of the gradient of one step: proven bound"] == pytest.approx(certificate.gradient)
    assert figure.axes[0].get_yscale() == "log"
    assert len(drawn(certificate.plot())) == 2
    assert len(drawn(tf.certify(X, y, trajectory=False).plot())) == 1
    with pytest.raises(InputError, match=r"a certificate is compared with a run; got str 'a.png'.*for a file: plot"):
        certificate.plot("a.png")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the reference is of another run"):
        certificate.plot(exact.weights[:-1])


def test_the_plot_of_an_evaluation_shows_curves_and_intervals(tmp_path: Path) -> None:
    task = Linear(d=3)
    found = evaluate(
        lambda x, y: torch.zeros_like(y), task, n_prompts=32, n_points=6, baselines=[Mean(), LeastSquares()]
    )
    figure = found.plot(tmp_path / "evaluation.png")
    shown = drawn(figure)
    names = {"the learner": "model", **{name: name for name in found.curves if name != "model"}}
    assert shown.keys() == names.keys()
    for label, name in names.items():
        assert shown[label] == pytest.approx(found.curves[name]["squared error"].value.tolist())
    assert len(figure.axes[0].collections) == 3  # an interval each
    assert drawn(found.plot(measure="pooled R^2"))["the learner"] != shown["the learner"]
    with pytest.raises(InputError, match="unknown measure"):
        found.plot(measure="error")


def test_plots_replace_only_plots(tf: ig.CompiledTransformer, tmp_path: Path) -> None:
    run, path = tf.run(*data()), tmp_path / "run.png"
    run.plot(path)
    run.plot(path)
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="innergrad plot did not write it"):
        run.plot(path)
    assert path.read_bytes() == b"mine"
    run.plot(path, force=True)
    assert made_by(path) == "plot"
