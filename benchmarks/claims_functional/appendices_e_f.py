"""Appendices E and F: A = 0, and A = a I."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from claims import gap, normal
from claims_functional.common import (
    ACTIVATIONS,
    LAYERS,
    ROOT_SIGMA,
    Activation,
    Array,
    D,
    Layer,
    Orbits,
    claim,
    critical,
    derivative,
    exp,
    eye,
    linear,
    mask,
    on_set,
    orbits,
    propagator,
    rotated,
    rotation,
    signed_permutations,
    some_point,
    sphere,
    states,
    two_layers,
    value,
    zeros,
)


@claim("(29)", "the infimum of the squared gradients over the set is 0 (here: already at B = C = 0)", limit=1e-9)
def eq_29() -> float:
    """The full gradient at B = C = 0 with the best r; the content of the theorem is at b, c not 0 (Thm. 4.5). inf if it
    is small beside that point too, or not the slope of the loss there, by differences.
    """
    sizes, h = [], 1e-5
    for name in ACTIVATIONS:
        o = orbits(name)
        r, *others = on_set(best_rates(o))
        sizes += [float(g.abs().max()) for k, g in enumerate(o.gradients(r, *others)) if k != 1]
        beside, ones = r + 0.1, torch.ones_like(r)
        slope = float(o.gradients(beside, *others)[0].sum())
        steps = [float(o.loss(beside + t * ones, *others)) for t in (h, -h)]
        if name in ("linear", "relu"):  # h is 0 there, and the loss the same for all r
            continue
        if abs(slope) < 1e-3 or abs((steps[0] - steps[1]) / (2 * h) - slope) > 1e-6 * abs(slope):
            return math.inf
    return max(sizes)


def best_rates(o: Orbits) -> Tensor:
    """The best r with a = b = c = 0."""

    def point(r: Array) -> Tensor:
        return torch.cat([torch.as_tensor(r), zeros(3 * LAYERS)])

    def loss(r: Array) -> tuple[float, Array]:
        weights = on_set(point(r))
        return float(o.loss(*weights)), o.gradients(*weights)[0].numpy()

    return point(minimize(loss, np.full(LAYERS, -0.1), jac=True, tol=1e-13).x)


def transformed(weights: tuple[Tensor, ...], L: Tensor) -> tuple[Tensor, ...]:
    """r, A, L^T B, L^{-1} C."""
    r, A, B, C = weights
    return r, A, L.mT @ B, torch.linalg.solve(L, C)


def invariance(free: bool) -> float:
    """Change of the loss under (B, C) -> (L^T B, L^{-1} C), and the gradient at the transformed critical point."""
    L, worst = eye(D) + 0.4 * normal(110, D, D), []
    for name in ACTIVATIONS:
        weights = on_set(critical(name, free))
        moved = transformed(weights, L)
        worst.append(gap(orbits(name).loss(*weights), orbits(name).loss(*moved)))
        gradients = orbits(name).gradients(*moved)
        worst += [float(g.abs().max()) for k, g in enumerate(gradients) if free or k != 1]
    return max(worst)


@claim(
    "(46)", "as (29), with A: the infimum of the squared gradients over the set is 0 (here: at B = C = 0)", limit=1e-9
)
def eq_46() -> float:
    return max(float(g.abs().max()) for name in ACTIVATIONS for g in flat_gradients(name))


def flat_gradients(name: str) -> tuple[Tensor, ...]:
    """The gradients in r, A, B, C at B = C = 0 with the best r."""
    return orbits(name).gradients(*on_set(best_rates(orbits(name))))


@claim("Remark E.2", "f(r, B, C) = f(r, ΛᵀB, Λ⁻¹C), so the theorem holds for B = bΛᵀΣ^{-½}, C = cΛ⁻¹Σ^{-½}", limit=1e-8)
def remark_e_2() -> float:
    return invariance(free=False)


def velocities(name: str, free: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Weights on the set, the gradients there, and the velocities of the flows (30), (47)."""
    weights = on_set(some_point(free))
    gradients = orbits(name).gradients(*weights)
    white = torch.linalg.inv(ROOT_SIGMA)
    A = torch.stack([-torch.trace(white @ g @ ROOT_SIGMA) / D * eye(D) for g in gradients[1]])
    moves = [torch.stack([-torch.trace(g @ ROOT_SIGMA) / D * white for g in part]) for part in gradients[2:]]
    return weights, gradients, (-gradients[0], A if free else torch.zeros_like(A), *moves)


def split(free: bool) -> float:
    """d loss / dt along the flow, by a central difference, minus the sum of the inner products, relative."""
    worst = []
    for name in ACTIVATIONS:
        weights, gradients, velocity = velocities(name, free)
        ends = [orbits(name).loss(*(w + t * v for w, v in zip(weights, velocity, strict=True))) for t in (1e-5, -1e-5)]
        parts = [float((g * v).sum()) for g, v in zip(gradients, velocity, strict=True)]
        if any(part >= 0 for part in parts if part) or abs(parts[0] + float((gradients[0] ** 2).sum())) > 1e-12:
            return math.inf
        worst.append(abs(float(ends[0] - ends[1]) / 2e-5 / sum(parts) - 1))
    return max(worst)


@claim(
    "(30), (32)-(35)",
    "the flow stays in the set, and df/dt is the sum of −Σ(∂_r f)² and the inner products of gradients and velocities",
    limit=1e-5,
)
def eq_30() -> float:
    """A finite difference of the loss; infinite if a part of the sum does not fall."""
    return split(free=False)


@claim("(47), (49)-(53)", "as (30), (32)-(35), with A moving along tr(Σ^{-½}∇_A f Σ^½)/d I", limit=1e-5)
def eq_47() -> float:
    return split(free=True)


@claim(
    "(51), bound",
    "(51) ≤ −Σ‖∇_B f‖²",
    "corrected",
    instead="−Σ‖∇_A f‖², and it is =",
    limit=1e-10,
    threshold=1e-2,
)
def eq_51() -> tuple[float, float]:
    """Relative to (51)."""
    right, printed = [], []
    for name in ACTIVATIONS:
        _, gradients, velocity = velocities(name, free=True)
        value_of_51 = float((gradients[1] * velocity[1]).sum())
        right.append(abs(float((gradients[1] ** 2).sum()) / value_of_51 + 1))
        printed.append(abs(float((gradients[2] ** 2).sum()) / value_of_51 + 1))
    return max(right), min(printed)


def flow_rate(free: bool) -> float:
    """(31), (48): d loss / dt along the flow of the proof plus the sum of squared gradients, relative.

    For A, B, C only: in r the flow is plain gradient descent, where there is nothing to show.
    """
    worst = []
    for name in ACTIVATIONS:
        weights = on_set(some_point(free))
        r, A, B, C = orbits(name).gradients(*weights)
        velocity = [torch.zeros_like(r), torch.zeros_like(A)]
        if free:
            velocity[1] = -torch.stack([torch.trace(g) / D * eye(D) for g in A])
        for g in (B, C):
            velocity.append(-torch.stack([torch.trace(G @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA) for G in g]))
        t = zeros().requires_grad_(True)
        loss = orbits(name).loss(*(w + t * v for w, v in zip(weights, velocity, strict=True)))
        (rate,) = torch.autograd.grad(loss, t)
        squares = sum(float((g**2).sum()) for g in ((A, B, C) if free else (B, C)))
        worst.append(abs(float(rate) + squares) / squares)
    return max(worst)


@claim(
    "(31)", "along the flow (30) the loss falls at least as fast as the sum of squared gradients (it is =)", limit=1e-10
)
def eq_31() -> float:
    return flow_rate(free=False)


def direction_gap(free: bool) -> float:
    """(38), (39), (56), (57): derivative along R in a B or C, minus that along tr(R Sigma^{1/2})/d Sigma^{-1/2}."""
    R, worst = normal(111, D, D), []
    along = torch.trace(R @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA)
    for name in ACTIVATIONS:
        for g in orbits(name).gradients(*on_set(some_point(free)))[2:]:
            worst += [abs(float((layer * (R - along)).sum())) / float((layer * along).sum().abs()) for layer in g]
    return max(worst)


def finite_gap(free: bool) -> float:
    """(38), (39), (56), (57) by central differences of the loss: along R and R~, every layer, B and C; relative."""
    R, worst = normal(141, D, D), []
    along = torch.trace(R @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA)
    for name, which, layer in itertools.product(ACTIVATIONS, (2, 3), range(LAYERS)):
        slopes = [difference(name, which, layer, S, free) for S in (R, along)]
        worst.append(abs(slopes[0] / slopes[1] - 1))
    return max(worst)


def difference(name: str, which: int, layer: int, S: Tensor, free: bool) -> float:
    """The derivative of the loss along S in the matrix ``which`` (A, B, C: 1, 2, 3) of a layer."""
    ends = []
    for t in (1e-4, -1e-4):
        weights = [w.clone() for w in on_set(some_point(free))]
        weights[which][layer] += t * S
        ends.append(float(orbits(name).loss(*weights)))
    return (ends[0] - ends[1]) / 2e-4


@claim(
    "(36)-(39)", "at B = bΣ^{-½}, C = cΣ^{-½}: derivatives along R are at most those along R̃ (they are =)", limit=1e-4
)
def eq_36() -> float:
    return finite_gap(free=False)


@claim("(54)-(57)", "the same at A = aI", limit=1e-4)
def eq_54() -> float:
    return finite_gap(free=True)


@claim("(37), mean", "R̃ is the mean of UᵀRU_Σ over orthogonal U, which is what the proof uses", limit=1e-12)
def eq_37() -> float:
    """The mean over the finite group."""
    R, group = normal(142, D, D), signed_permutations(D)
    wanted = torch.trace(R @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA)
    return gap((group.mT @ R @ rotated(eye(D), group)).mean(0), wanted)


@claim("Prop. E.3", "the derivative along any R is at most that along R̃ = tr(RΣ^½)/d Σ^{-½} (it is =)", limit=1e-10)
def prop_e_3() -> float:
    """Relative. Since -R is allowed too, <= for all R means =: the gradient is a multiple of Sigma^{1/2}."""
    return direction_gap(free=False)


@claim(
    "(40)",
    "Y_{ℓ+1} = Y_ℓ + r Y_ℓ M h(BX, BX) = Y₀ Π (I + r M h(BX₀, CX₀))",
    "corrected",
    instead="h(BX, CX) in the first form too",
    limit=1e-12,
    threshold=1e-2,
)
def eq_40() -> tuple[float, float]:
    X, M, layers, right, printed = normal(116, 3, 5), mask(5), two_layers(zeros(3, 3)), [], []
    for h in ACTIVATIONS.values():
        G = propagator(X, layers, h)
        factors = [
            [eye(5) + V[-1, -1] * M @ h(B @ X, P @ X) for V, B, P in ls]
            for ls in (layers, [(V, B, B) for V, B, _ in layers])
        ]
        right.append(gap(G, factors[0][0] @ factors[0][1]))
        printed.append(gap(G, factors[1][0] @ factors[1][1]))
    return max(right), min(printed)


@claim(
    "(43)",
    "d/dt G(U_ΣX₀, tR) = d/dt G(X₀, tU_ΣᵀRU_Σ)",
    "corrected",
    instead="tUᵀRU_Σ, as in the proof that follows",
    limit=1e-10,
    threshold=1e-2,
)
def eq_43() -> tuple[float, float]:
    """Directional derivatives of the propagator by autograd."""
    X, U, R = ROOT_SIGMA @ normal(117, 3, 5), rotation(118, 3), normal(119, 3, 3)
    white, U_sigma = torch.linalg.inv(ROOT_SIGMA), rotated(eye(3), U)

    def slope(P: Tensor, S: Tensor, h: Activation) -> Tensor:
        def G(T: Tensor) -> Tensor:
            V = value(-0.3, zeros(3, 3))
            return propagator(P, [(V, 0.9 * white + T, 0.8 * white), (V, 1.1 * white, 0.7 * white)], h)

        return derivative(G, (zeros(3, 3),), (S,))

    right, printed = [], []
    for h in ACTIVATIONS.values():
        moved = slope(U_sigma @ X, R, h)
        right.append(gap(moved, slope(X, U.mT @ R @ U_sigma, h)))
        printed.append(gap(moved, slope(X, U_sigma.mT @ R @ U_sigma, h)))
    return max(right), min(printed)


@dataclass(frozen=True)
class Perturbed:
    """Three layers on the set, the second with B + S or A + S: X_i(X, S) of (59), (73) and G_i(X, S)."""

    h: Activation
    which: str  # "A" or "B"
    a: float = 0.15

    def layers(self, S: Tensor) -> list[Layer]:
        white, made = torch.linalg.inv(ROOT_SIGMA), []
        for i, (r, b, c) in enumerate(((-0.3, 0.9, 0.8), (-0.2, 1.1, 0.7), (0.1, 0.8, 0.9))):
            moved = S if i == 1 else torch.zeros_like(S)
            A, B = self.a * eye(3), b * white
            made.append(
                (value(r, A + moved), B, c * white) if self.which == "A" else (value(r, A), B + moved, c * white)
            )
        return made

    def X(self, i: int, X: Tensor, S: Tensor) -> Tensor:
        return states(X, self.layers(S), self.h)[i]

    def G(self, i: int, X: Tensor, S: Tensor) -> Tensor:
        """G_i, of the layers up to i."""
        return propagator(X, self.layers(S)[: i + 1], self.h)

    def slope(self, of: str, i: int, X: Tensor, S: Tensor) -> Tensor:
        """d/dt at tS."""
        return derivative(lambda T: getattr(self, of)(i, X, T), (zeros(3, 3),), (S,))


def perturbed(which: str) -> list[Perturbed]:
    """A = aI, for the h that are smooth where they are looked at."""
    return [Perturbed(h, which) for h in ACTIVATIONS.values()]


@cache
def turned() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X_0, U, U_Sigma and a direction R."""
    U = rotation(151, 3)
    return ROOT_SIGMA @ normal(150, 3, 5) / 2, U, rotated(eye(3), U), normal(152, 3, 3)


def conjugate(which: str) -> Tensor:
    """U^T R U_Sigma for a B, U_Sigma^-1 R U_Sigma for an A."""
    _, U, U_sigma, R = turned()
    return U.mT @ R @ U_sigma if which == "B" else torch.linalg.solve(U_sigma, R @ U_sigma)


def states_turn(which: str) -> float:
    """(62)-(64), (76)-(78): X_i and its derivative at the turned inputs, i = 0, ..., 3; the second layer is moved."""
    X, _, U_sigma, R = turned()
    worst = []
    for p in perturbed(which):
        for i in range(4):
            worst.append(gap(p.X(i, U_sigma @ X, zeros(3, 3)), U_sigma @ p.X(i, X, zeros(3, 3))))
            slope = p.slope("X", i, U_sigma @ X, R)
            worst.append(gap(slope, U_sigma @ p.slope("X", i, X, conjugate(which))))
            if (float(slope.abs().max()) > 0) != (i > 1):
                return math.inf
    return max(worst)


def propagators_turn(which: str) -> float:
    """(66), (67), (80), (81)."""
    X, _, U_sigma, R = turned()
    worst = []
    for p, i in itertools.product(perturbed(which), range(3)):
        worst.append(gap(p.G(i, U_sigma @ X, zeros(3, 3)), p.G(i, X, zeros(3, 3))))
        worst.append(gap(p.slope("G", i, U_sigma @ X, R), p.slope("G", i, X, conjugate(which))))
    return max(worst)


@claim("(42), (44)", "B U_Σ = U B, C U_Σ = U C on the set, so that G(U_ΣX₀, 0) = G(X₀, 0)", limit=1e-11)
def eq_42() -> float:
    X, U, U_sigma, _ = turned()
    errors = []
    for p in (Perturbed(h, "B", a=0.0) for h in ACTIVATIONS.values()):
        for _, B, C in p.layers(zeros(3, 3)):
            errors += [gap(P @ U_sigma, U @ P) for P in (B, C)]
        errors.append(gap(p.G(2, U_sigma @ X, zeros(3, 3)), p.G(2, X, zeros(3, 3))))
    return max(errors)


def derivative_of_loss(which: str, free: bool) -> float:
    """(41), (61), (75): d loss = 2 E Tr((I-M) G^T K dG (I-M)) at turned inputs, against autograd of the loss itself.

    One element of the group turns every prompt: it permutes the orbit, so the mean stays.
    """
    U, R, worst = signed_permutations(D)[17], normal(153, D, D), []
    position = {"A": 1, "B": 2}[which]
    for name in ("linear", "softmax"):
        o, weights = orbits(name), on_set(some_point(free))
        wanted = float((o.gradients(*weights)[position][0] * R).sum())
        total = zeros()
        for prompt_number in range(len(o.Z)):
            X = o.Z[prompt_number, 0, :-1]
            white = torch.linalg.solve(ROOT_SIGMA, X)

            def G(T: Tensor, X: Tensor = X, o: Orbits = o) -> Tensor:
                moved = list(on_set(some_point(free)))
                first = torch.zeros(LAYERS, 1, 1, dtype=torch.float64)
                first[0] = 1
                moved[position] = moved[position] + first * T
                layers = [(value(r, A), B, C) for r, A, B, C in zip(*moved, strict=True)]
                return propagator(rotated(X, U), layers, o.h)

            last, slope = (P[:, -1] for P in (G(zeros(D, D)), derivative(G, (zeros(D, D),), (R,))))
            total = total + 2 * last @ exp(white, white) @ slope / len(o.Z)
        worst.append(abs(float(total) / wanted - 1))
    return max(worst)


@claim("(41)", "d/dt f(V, B(tR), C) = 2E Tr((I−M) G(U_ΣX₀, 0)ᵀ K(X₀) d/dt G(U_ΣX₀, tR) (I−M)), A = 0", limit=1e-9)
def eq_41() -> float:
    return derivative_of_loss("B", free=False)


@claim(
    "(45)",
    "J_h(BU_ΣX₀, CU_ΣX₀)[SU_ΣX₀] = J_h(BX₀, CX₀)[UᵀSU_ΣX₀] (J: d/dt h(U + tT, V), the t is missing)",
    limit=1e-11,
)
def eq_45() -> float:
    X, U, U_sigma, S = turned()
    B, C = (s * torch.linalg.inv(ROOT_SIGMA) for s in (0.9, 0.8))
    errors = []
    for h in ACTIVATIONS.values():
        still = torch.zeros_like(X)
        left = derivative(h, (B @ U_sigma @ X, C @ U_sigma @ X), (S @ U_sigma @ X, still))
        errors.append(gap(left, derivative(h, (B @ X, C @ X), (U.mT @ S @ U_sigma @ X, still))))
    return max(errors)


@claim(
    "(45), last line after it",
    "d/dt G(U_ΣX₀, tR) = .. = d/dt G(U_ΣX₀, tUᵀRU_Σ), with factors I + M h",
    "corrected",
    instead="d/dt G(X₀, tUᵀRU_Σ), as (43) needs, with factors I + r M h",
    limit=1e-11,
    threshold=1e-2,
)
def eq_45_after() -> tuple[float, float]:
    X, _, U_sigma, R = turned()
    right, printed = [], []
    for p in (Perturbed(h, "B", a=0.0) for h in ACTIVATIONS.values()):
        moved = p.slope("G", 2, U_sigma @ X, R)
        right.append(gap(moved, p.slope("G", 2, X, conjugate("B"))))
        printed.append(gap(moved, p.slope("G", 2, U_sigma @ X, conjugate("B"))))
    return max(right), min(printed)


@claim(
    "(59), (62)-(64)",
    "X_i and its derivative in B turn with the inputs; before the layer that moves it is 0",
    limit=1e-11,
)
def eq_62() -> float:
    return states_turn("B")


@claim("(60), (61)", "as (44) and (41), for A = aI", limit=1e-9)
def eq_61() -> float:
    """(60) is B U_Sigma = U B and C U_Sigma = U C, without which the turned G would not be the same."""
    return derivative_of_loss("B", free=True)


def chain_rule(which: str) -> float:
    """(65), (79): the derivative of the state after the moved layer, term by term, against autograd of the whole."""
    X, _, U_sigma, R = turned()
    moved, still, errors = U_sigma @ X, zeros(3, 3), []
    for p in perturbed(which):
        V, B, C = p.layers(still)[1]
        before, M = p.X(1, moved, still), mask(5)
        if which == "A":  # d/dt A_j(tR) = R; all other terms are 0
            terms = R @ before @ M @ p.h(B @ before, C @ before)
        else:
            tangent = (R @ before, torch.zeros_like(before))
            terms = V[:3, :3] @ before @ M @ derivative(p.h, (B @ before, C @ before), tangent)
        errors.append(gap(p.slope("X", 2, moved, R), terms))
    return max(errors)


@claim("(65)", "d/dt X_{j+1} by the chain rule: only the h of the moved layer depends on t", limit=1e-11)
def eq_65() -> float:
    return chain_rule("B")


@claim(
    "(65), T̃ after it",
    "T̃(t) = (C_j + tR) U_ΣX_j(X₀, 0) = U(C_j + tUᵀRU_Σ) X_j(X₀, 0)",
    "corrected",
    instead="T̃(t) = C_j U_ΣX_j(X₀, 0) = U C_j X_j(X₀, 0): C does not move",
    limit=1e-11,
    threshold=1e-2,
)
def eq_65_after() -> tuple[float, float]:
    """d/dt h(S, T) of the moved layer, with either T."""
    X, _, U_sigma, R = turned()
    right, printed = [], []
    for p in perturbed("B"):
        _, B, C = p.layers(zeros(3, 3))[1]
        before = p.X(1, U_sigma @ X, zeros(3, 3))
        at, push = (B @ before, C @ before), R @ before

        def moved(T: Tensor, p: Perturbed = p, B: Tensor = B, C: Tensor = C) -> Tensor:
            state = p.X(1, U_sigma @ X, T)
            return p.h((B + T) @ state, C @ state)

        wanted = derivative(moved, (zeros(3, 3),), (R,))
        right.append(gap(derivative(p.h, at, (push, torch.zeros_like(push))), wanted))
        printed.append(gap(derivative(p.h, at, (push, push)), wanted))
    return max(right), min(printed)


@claim("(66), (67)", "G_i(U_ΣX₀, 0) = G_i(X₀, 0), and their derivatives in B along R and UᵀRU_Σ agree", limit=1e-11)
def eq_66() -> float:
    return propagators_turn("B")


@claim(
    "(69)-(71)", "at (69): the derivative along R in A is at most that along tr(Σ^{-½}RΣ^½)/d I (it is =)", limit=1e-4
)
def eq_69() -> float:
    """Central differences of the loss in the A of the first layer (the last A does not reach the labels)."""
    R = normal(154, D, D)
    along = torch.trace(torch.linalg.solve(ROOT_SIGMA, R @ ROOT_SIGMA)) / D * eye(D)
    slopes = [[difference(name, 1, 0, S, True) for S in (R, along)] for name in ACTIVATIONS]
    return max(abs(a / b - 1) for a, b in slopes)


@claim(
    "(74)",
    "C_i U_Σ = c_i Σ^{-½}Σ^½UΣ^{-½} = U B_i",
    "corrected",
    instead="U C_i",
    limit=1e-12,
    threshold=1e-2,
)
def eq_74() -> tuple[float, float]:
    _, U, U_sigma, _ = turned()
    _, B, C = Perturbed(linear, "A").layers(zeros(3, 3))[1]
    return gap(C @ U_sigma, U @ C), gap(C @ U_sigma, U @ B)


@claim("(73), (76)-(78)", "X_i and its derivative in A turn with the inputs, along U_Σ⁻¹RU_Σ", limit=1e-11)
def eq_76() -> float:
    return states_turn("A")


@claim("(75)", "as (41) for the derivative in A", limit=1e-9)
def eq_75() -> float:
    """In the A of the first layer."""
    return derivative_of_loss("A", free=True)


@claim(
    "(79)", "d/dt X_{j+1} in A: R X_j M h of the moved layer, the other terms are 0 (by (78), not (74))", limit=1e-11
)
def eq_79() -> float:
    return chain_rule("A")


@claim("(80), (81)", "G_i(U_ΣX₀, 0) = G_i(X₀, 0), and their derivatives in A along R and U_Σ⁻¹RU_Σ agree", limit=1e-11)
def eq_80() -> float:
    return propagators_turn("A")


@claim(
    "(68), (82), derivative",
    "d/dt (I + r M h) = I + r M d/dt h (the displays after both)",
    "corrected",
    instead="r M d/dt h",
    limit=1e-6,
    threshold=0.5,
)
def eq_68_derivative() -> tuple[float, float]:
    """Autograd of h, against a central difference of the factor G_{i-1}^-1 G_i of the last layer."""
    X, _, _, R = turned()
    right, printed = [], []
    for p in perturbed("A"):
        V, B, C = p.layers(zeros(3, 3))[2]

        def h_of(T: Tensor, p: Perturbed = p, B: Tensor = B, C: Tensor = C) -> Tensor:
            state = p.X(2, X, T)
            return p.h(B @ state, C @ state)

        slope = V[-1, -1] * mask(5) @ derivative(h_of, (zeros(3, 3),), (R,))
        step = 1e-5
        ends = [torch.linalg.solve(p.G(1, X, t * R), p.G(2, X, t * R)) for t in (step, -step)]
        factor = (ends[0] - ends[1]) / (2 * step)
        right.append(gap(slope, factor))
        printed.append(gap(slope + eye(5), factor))
    return max(right), min(printed)


@claim("Remark F.2", "f(r, A, B, C) = f(r, A, ΛᵀB, Λ⁻¹C), so the theorem holds for the transformed set", limit=1e-8)
def remark_f_2() -> float:
    return invariance(free=True)


@claim(
    "(48)", "along the flow (47) the loss falls at least as fast as the sum of squared gradients (it is =)", limit=1e-10
)
def eq_48() -> float:
    return flow_rate(free=True)


@claim("Prop. F.3", "as Prop. E.3, for A = aI", limit=1e-10)
def prop_f_3() -> float:
    return direction_gap(free=True)


@claim(
    "(58), (72)",
    "Y_{i+1} = Y₀ Π (I + r M h(B_ℓX₀, C_ℓX₀)) also when A ≠ 0",
    "corrected",
    instead="h(B_ℓX_ℓ, C_ℓX_ℓ): the covariates move",
    limit=1e-12,
    threshold=1e-3,
)
def eq_58() -> tuple[float, float]:
    X, layers = sphere(120, 3, 5), two_layers(0.3 * eye(3))
    errors: list[list[float]] = [[], []]
    for h in ACTIVATIONS.values():
        G, moving = propagator(X, layers, h), states(X, layers, h)
        for k, Xs in enumerate((moving, X.expand_as(moving))):
            factors = [eye(5) + V[-1, -1] * mask(5) @ h(B @ Xs[i], C @ Xs[i]) for i, (V, B, C) in enumerate(layers)]
            errors[k].append(gap(G, factors[0] @ factors[1]))
    return max(errors[0]), min(errors[1])


@claim(
    "(68), (82)",
    "G_i = (I + r_i M h_i) G_{i−1}",
    "corrected",
    instead="G_i = G_{i−1} (I + r_i M h_i); and in its derivative the I drops out",
    limit=1e-12,
    threshold=1e-3,
)
def eq_68() -> tuple[float, float]:
    X, layers, right, printed = sphere(121, 3, 5), two_layers(0.3 * eye(3)), [], []
    for h in ACTIVATIONS.values():
        before, after = (propagator(X, layers[:k], h) for k in (1, 2))
        (V, B, C), P = layers[1], states(X, layers, h)[1]
        factor = eye(5) + V[-1, -1] * mask(5) @ h(B @ P, C @ P)
        right.append(gap(after, before @ factor))
        printed.append(gap(after, factor @ before))
    return max(right), min(printed)


@claim(
    "(82), T′(0) after it",
    "T′(0) = B_i d/dt X_i(U_ΣX₀, tR) = U B_i d/dt X_i(X₀, tU_Σ⁻¹RU_Σ), T(t) = C_i X_i(U_ΣX₀, tR)",
    "corrected",
    instead="with C_i for B_i, as T is defined two lines before; and S(0), T(0) are U B_i X_i(X₀, 0), U C_i X_i(X₀, 0)",
    limit=1e-11,
    threshold=1e-2,
)
def eq_82_after() -> tuple[float, float]:
    """The layer after the moved one: S(0), T(0), S'(0), T'(0) at the turned inputs, against U times those at X_0."""
    X, U, U_sigma, R = turned()
    right, printed = [], []
    for p in perturbed("A"):
        _, B, C = p.layers(zeros(3, 3))[2]
        slopes = [p.slope("X", 2, U_sigma @ X, R), U @ C @ p.slope("X", 2, X, conjugate("A"))]
        right += [gap(C @ slopes[0], slopes[1]), gap(B @ slopes[0], U @ B @ p.slope("X", 2, X, conjugate("A")))]
        at = [p.X(2, U_sigma @ X, zeros(3, 3)), p.X(2, X, zeros(3, 3))]
        right += [gap(W @ at[0], U @ W @ at[1]) for W in (B, C)]
        printed.append(gap(B @ slopes[0], C @ slopes[0]))
    return max(right), min(printed)


@claim("Prop. F.4", "the derivative along any R in A is at most that along tr(Σ^{-½}RΣ^½)/d I (it is =)", limit=1e-10)
def prop_f_4() -> float:
    R, worst = normal(122, D, D), []
    along = torch.trace(torch.linalg.solve(ROOT_SIGMA, R @ ROOT_SIGMA)) / D * eye(D)
    for name in ACTIVATIONS:
        layers = orbits(name).gradients(*on_set(some_point(True)))[1][:-1]  # the last A does not reach the labels
        worst += [abs(float((g * (R - along)).sum())) / float((g * along).sum().abs()) for g in layers]
    return max(worst)


@claim(
    "Prop. F.4, last display",
    "E_U[UᵀRU_Σ] = R̃ of (70)",
    "corrected",
    instead="E_U[U_Σ⁻¹RU_Σ], as in (81)",
    limit=1e-12,
    threshold=1e-2,
)
def prop_f_4_display() -> tuple[float, float]:
    """The mean over the finite group."""
    R, group = normal(123, D, D), signed_permutations(D)
    U_sigma = rotated(eye(D), group)
    wanted = torch.trace(torch.linalg.solve(ROOT_SIGMA, R @ ROOT_SIGMA)) / D * eye(D)
    right = torch.linalg.solve(U_sigma, R @ U_sigma).mean(0)
    return gap(right, wanted), gap((group.mT @ R @ U_sigma).mean(0), wanted)


def curves() -> tuple[Tensor, ...]:
    """S(0), T(0), S'(0), T'(0), Gamma."""
    return (*(normal(s, 3, 5) for s in (124, 125, 126, 127)), eye(3) + 0.4 * normal(128, 3, 3))


@claim("Lemma F.5", "d/dt h(S, T) = d/dt h(ΓᵀS̃, Γ⁻¹T̃) at 0 if values and first derivatives agree at 0", limit=1e-10)
def lemma_f_5() -> float:
    """Curves that differ in second order."""
    S, T, dS, dT, Gamma = curves()
    errors = []
    for h in ACTIVATIONS.values():

        def one(t: Tensor, h: Activation = h) -> Tensor:
            return h(S + t * dS + t**2 * T, T + torch.sin(t) * dT)

        def two(t: Tensor, h: Activation = h) -> Tensor:
            return h(Gamma.mT @ (S + torch.sin(t) * dS), torch.linalg.solve(Gamma, T + t * dT - t**2 * S))

        zero, unit = zeros(), torch.ones((), dtype=torch.float64)
        errors.append(gap(*(derivative(f, (zero,), (unit,)) for f in (one, two))))
    return max(errors)


@claim(
    "Lemma F.5, proof",
    "line 3: the Jacobians of h at (S̃, T̃) applied to (ΓᵀS̃′, Γ⁻¹T̃′) give the same",
    "corrected",
    instead="the Jacobians at (ΓᵀS̃, Γ⁻¹T̃)",
    limit=1e-10,
    threshold=1e-2,
)
def lemma_f_5_proof() -> tuple[float, float]:
    """Directional derivatives by autograd; inf if they are not those of differences."""
    S, T, dS, dT, Gamma = curves()
    tangent = (Gamma.mT @ dS, torch.linalg.solve(Gamma, dT))
    right, printed = [], []
    for h in ACTIVATIONS.values():
        wanted = derivative(h, (S, T), (dS, dT))
        steps = [h(S + t * dS, T + t * dT) for t in (1e-6, -1e-6)]
        if gap((steps[0] - steps[1]) / 2e-6, wanted) > 1e-6 * float(wanted.abs().max()):
            return math.inf, 0.0
        right.append(gap(derivative(h, (Gamma.mT @ S, torch.linalg.solve(Gamma, T)), tangent), wanted))
        printed.append(gap(derivative(h, (S, T), tangent), wanted))
    return max(right), min(printed)
