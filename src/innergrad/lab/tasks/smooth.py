"""Smooth functions (*Neural Networks*, Theorem 4: f with n bounded derivatives), as random sums of waves with decaying
amplitudes.

    f(x) = sqrt(2 / waves) sum_m a_m cos(omega_m . x + phi_m),   a_m ~ N(0, 1), phi_m uniform,
    omega_m = g_m sqrt(2 nu / chi2_m) / length,  g_m ~ N(0, I), chi2_m ~ chi-squared(2 nu), nu = smoothness + 1/2

Waves of frequency omega are as rare as |omega|^-(2 nu + d), so the amplitude at high frequencies decays as that of a
function with ``smoothness`` derivatives. Averaged over omega, the covariance is exactly the Matern kernel of order nu
(Rahimi and Recht's random features). The mean square of a label is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from innergrad.errors import integer, real
from innergrad.lab.baselines import KernelBayes, Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task
from innergrad.lab.tasks.covariances import Matern


@dataclass(frozen=True)
class SmoothFunctions(Task, kind="smooth"):
    """Random smooth functions: sums of random waves.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        smoothness: how many derivatives they have.
        length: the size of features, divided by sqrt(d).
        waves: how many are added up.
    """

    smoothness: int = 3
    length: float = 1.0
    waves: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("smoothness", self.smoothness, low=0, high=20)
        real("length", self.length, above=0.0)
        integer("waves", self.waves)

    @property
    def kernel(self) -> Matern:
        """The covariance of labels."""
        return Matern(self.smoothness, self.length * self.d**0.5)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        degrees = 2 * self.smoothness + 1
        chi2 = rng.fork("chi2").normal(index, self.waves, degrees).square().sum(-1)
        stretch = (degrees / chi2).sqrt() / self.kernel.length
        return {
            "omega": rng.fork("omega").normal(index, self.waves, self.d) * stretch[:, :, None],
            "phase": rng.fork("phase").uniform(index, self.waves) * (2.0 * math.pi),
            "amplitude": rng.fork("amplitude").normal(index, self.waves) * (2.0 / self.waves) ** 0.5,
        }

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        waves = (x @ params["omega"].mT + params["phase"][:, None]).cos()
        return (waves @ params["amplitude"][:, :, None])[:, :, 0]

    def best(self) -> Predictor:
        """The posterior mean of the Gaussian process with this covariance, which many waves are close to."""
        return KernelBayes(self.kernel, noise=self.noise, flip=False)
