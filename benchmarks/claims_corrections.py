"""The twenty corrections of docs/reference/corrections.md: what the paper says, what is right, and a counter-example.

A correction names the row of the ledger that it rests on. The counter-example's number is that row's: ``{printed}`` in
the text is the error of the printed statement, ``{measured}`` that of the corrected one, both from results/claims.json.
Other numbers of a counter-example are settings of the row's check: ``settings`` has the words and the code that they
stand for, and ``claims.py --check`` fails if one is not there, or if a number has no code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    row: str  # id of the row
    title: str
    says: str
    right: str
    example: str
    settings: tuple[tuple[str, str], ...] = ()  # words of the example, code of the check


CORRECTIONS = (
    Correction(
        "optimizers-Cor-1.1-4.1",
        "How errors of steps add up",
        "Take l steps, each with an error of at most ηε. The weights are then within L_f⁻¹(1 + nL_f)ˡ ε of "
        "gradient descent, where n is the number of examples.",
        "The factor is 1 + ηL_f, where η is the step size. The bound is L_f⁻¹((1 + ηL_f)ˡ − 1)ε, and it is attained.",
        "With one example, η = 10 and six steps near a saddle, the distance is {printed} times the printed "
        "bound and {measured} times the corrected one.",
        (
            ("one example", "one = 1e-9, 10.0, torch.ones(1, 1"),
            ("η = 10", "eta, one = 1e-9, 10.0"),
            ("six steps", "saddle_path(eta, 6, eps)"),
        ),
    ),
    Correction(
        "optimizers-Cor-1.1-w-GD",
        "The trajectory that is followed",
        "The transformer follows gradient descent without a projection.",
        "It follows projected gradient descent. The two part as soon as the box is reached, however exact the "
        "steps are.",
        "For f = (w − 3)²/2 in the box [−1, 1] their distance is {printed} times the corrected bound.",
        (
            ("(w − 3)²/2", "lambda w: w - 3"),
            ("[−1, 1]", "box=1.0"),
        ),
    ),
    Correction(
        "optimizers-Theorem-1-order",
        "The order of the layers",
        "One step is the composition TF^{{N+2}} ∘ EWML^N ∘ TF², so the two layers of the update run first.",
        "The order is TF² ∘ EWML^N ∘ TF^{{N+2}}: forward pass, products, then update and projection.",
        "Dense layers in the printed order leave w where it is, an error of {printed} times the step; in the "
        "right order it is {measured}.",
    ),
    Correction(
        "optimizers-eq-2.3-start",
        "Descent cannot start at zero",
        "The steps start at w⁽⁰⁾ = 0.",
        "They have to start from other weights, which the prompt holds. For r(0) = 0 and two or more layers "
        "the gradient at 0 is 0.",
        "Fifty steps from 0 leave {printed} times the first loss, from random weights {measured}.",
        (
            ("Fifty steps", "compiled(steps=50)"),
            ("from 0", "torch.zeros(algorithm_of(tf)"),
        ),
    ),
    Correction(
        "optimizers-Abstract-ReLU",
        "Networks of ReLUs",
        "A transformer simulates gradient descent of an N-layer *ReLU* network to within any given error.",
        "The gradient of such a network jumps at its kinks, and a transformer is continuous in weights and data. "
        "So near a kink every transformer is wrong by half the jump or more, for every ε.",
        "There a gradient of size 1 is wrong by {printed} at least; away from kinks the construction is exact"
        " up to {measured}.",
        (("size 1", "torch.tensor([z, 1.0]"),),
    ),
    Correction(
        "optimizers-Lemma-6-13-3.22-3.23",
        "Bounds of the back-propagated signal",
        "The entries of s are bounded by (P B_r′ B_v)^{{N−j}} B_r′ B_l. This follows from bounds on the rows of "
        "the weights and on the entries of the loss's derivative.",
        "Back-propagation multiplies by transposed weights, whose rows are not bounded. Either B_l bounds the "
        "2-norm of the derivative, or a factor √d is missing.",
        "With 16 units, all rows of V₂ equal to e₁ and V₁ = 0, a compiled transformer's s is {printed} times "
        "the printed bound.",
        (
            ("16 units", "COUNTEREXAMPLE = (16, 16, 16)"),
            ("V₁ = 0", "[torch.zeros(16, 16"),
        ),
    ),
    Correction(
        "optimizers-Theorem-1-Proj",
        "Which projections an MLP can do",
        "The weights live in balls ‖v‖₂ ≤ B_v, and the projection onto their domain is assumed to be an MLP of ReLUs.",
        "That is true for boxes and other polyhedra. The projection onto a ball is curved, and no ReLU network "
        "is equal to it.",
        "Along the line (2, t), 0 ≤ t ≤ 1, the second derivative of the projection onto the unit disc is at "
        "least {printed} in size, where that of a ReLU network is 0 between its kinks.",
        (
            ("(2, t), 0 ≤ t ≤ 1", "torch.linspace(0, 1, 1001"),
            ("is 0 between", "torch.relu(w - B)"),
        ),
    ),
    Correction(
        "optimizers-Lemma-14-step-size",
        "How large a step may be",
        "The gradients along the trajectory become small for step sizes η ≤ L_f.",
        "They become small for η ≤ 1/L_f.",
        "For f = 5(w − ½)² on [−1, 1], L_f = 10 and η = 5, descent jumps from wall to wall: the mean squared "
        "gradient is {printed} times the printed bound.",
        (("5(w − ½)² on [−1, 1], L_f = 10 and η = 5", "L_f, eta, steps, box = 10.0, 5.0, 1000, 1.0"),),
    ),
    Correction(
        "optimizers-Problem-1-W",
        "Domains of the weights",
        "The domain W of the weights is closed, and steps are projected onto it.",
        "It has to be convex, too. The projection onto other closed sets can take nearby points far apart, and "
        "no bound on the trajectory survives that.",
        "For W = [−2, −1] ∪ {{0}} ∪ [1, 2], one step with an error of 0.001 ends {printed} times as far away "
        "as the corollary allows.",
        (
            ("[−2, −1] ∪ {{0}} ∪ [1, 2]", "(min(max(w, -2.0), -1.0), 0.0, min(max(w, 1.0), 2.0))"),
            ("0.001", "0.4999 + 1e-3"),
        ),
    ),
    Correction(
        "optimizers-Lemma-16-18",
        "Universal approximation by softmax attention",
        "For grids fine enough, the block is within a given distance of f at *every* input.",
        "The proof shows it away from the ramps of the quantiser, and so in the mean. At every input it is "
        "false: the ids of two tokens have too few extrema for a function with three peaks.",
        "For such a function of two scalar tokens and D = 10⁵, every block is wrong somewhere by {printed} "
        "times the printed bound.",
        (("two scalar tokens and D = 10⁵", "lemma_bound(1, 2, 10**5"),),
    ),
    Correction(
        "optimizers-Theorem-6-L-steps",
        "Many steps of the softmax construction",
        "L identical blocks do L steps.",
        "The block also moves the data. It takes x and y to the next point of the grid, a cell higher each "
        "time, unless it writes the centres of cells.",
        "After 20 blocks x is {printed} cells off or more; with centres, {measured}.",
        (("20 blocks", "range(20)"),),
    ),
    Correction(
        "networks-App-A-last-layer",
        "The layer that makes the step",
        "Queries hold the derivative of the loss at token i, and keys hold the gradient of the prediction at "
        "token j. Their sum is the gradient of the loss.",
        "Both factors must come from one token: a constant query, and keys [g_j; v_j; 1]. As printed the "
        "result is g of one token times the mean of all gradients.",
        "The update is off by {printed} in the better of the two readings of the attention layer, and by "
        "{measured} when mended.",
        (("two readings", "for form in (False, True)"),),
    ),
    Correction(
        "networks-App-A-heads",
        "How many heads a deep network takes",
        "O(nK²ε⁻²) heads give a step with error ε on networks of n layers, as if each fit might have an error"
        " of the order of ε.",
        "On its way to the output an error of a fit is multiplied by up to ‖W‖L_r in every layer. So fits must "
        "be (‖W‖L_r)ⁿ times finer. Unless ‖W‖L_r ≤ 1, the number of heads grows accordingly with the depth.",
        "From 2 to 10 layers with ‖W‖ = 2, the same error of r grows {printed} times more than n does.",
        (
            ("From 2 to 10 layers", "range(2, 11)"),
            ("‖W‖ = 2", "torch.full((4, 4), 0.5"),
        ),
    ),
    Correction(
        "networks-Theorem-3",
        "What the ball costs",
        "With 3-layer networks of width O(ε⁻¹), the transformer that learns the indicator of a ball needs "
        "O(ε⁻¹) parameter matrices.",
        "By the paper's own count, layers times heads, it is the square of the width: O(ε⁻²). The theorem "
        "compares it with a lower bound in which the dimension grows; then it is O(ε⁻³).",
        "The smaller of the counted exponents exceeds the printed one by {printed}.",
    ),
    Correction(
        "networks-Lemma-2",
        "Balls by 3-layer networks",
        "For *every* continuous law of x, a network of width max(8c d²/σ, c√(1/2δ)) is within δ of the "
        "indicator of the unit ball, where c depends on the activation alone.",
        "The width has δ in place of σ, and the law matters. A network of given width has finitely many linear "
        "pieces, and on a thin enough shell about the sphere none of them helps.",
        "In the plane, for δ = 0.1 and c up to 100, every such ReLU network is at least {printed} δ away from"
        " the disc on the shell.",
        (("δ = 0.1 and c up to 100", "for c in (1, 10, 100)) / 0.1"),),
    ),
    Correction(
        "cheng-eq-7",
        "The sign of functional gradient descent",
        "∇L(f) is the unit g along which the loss falls fastest, and f ← f − r∇L(f).",
        "That g descends, so the minus climbs. The proofs and the transformer use the gradient itself, "
        "−2 Σ (yᵢ − f(xᵢ)) K(·, xᵢ).",
        "A step of length 0.01 as printed *raises* the loss by the factor 1 + {printed}.",
        (
            ("length 0.01", "- 0.01 * g"),
            ("factor 1 +", "/ loss(theta.detach()) - 1"),
        ),
    ),
    Correction(
        "cheng-Definition-3.3",
        "A process that is none",
        "Labels N(0, U|D|Uᵀ) generalise the Gaussian process to functions K that are no kernels.",
        "For a kernel it is the Gaussian process. Otherwise the law of the examples' labels depends on where "
        "the query is, so there is no process behind them.",
        "For the ReLU function, leaving out the query changes the covariance of the examples' labels by {printed}.",
    ),
    Correction(
        "cheng-Sec-3.1.2",
        "A bandwidth that counts twice",
        "With the kernel exp(⟨·,·⟩/σ²) as attention and B = C = I/σ, the transformer follows functional "
        "gradient descent with that kernel.",
        "The two scalings multiply, to exp(⟨·,·⟩/σ⁴). One of them has to go.",
        "For σ = 1.5 the predictions are off by {printed}; with one scaling, by {measured}.",
        (("σ = 1.5", "1.5"),),
    ),
    Correction(
        "akyurek-Lemma-6-45",
        "Switching off layer normalisation",
        "√(2/L) N times the layer norm of [x, N, −N − Σx, 0] is about [x, 2N, −2N − Σx, 0].",
        "It is about its argument, [x, N, −N − Σx, 0]. Pads N − S/2 and −N − S/2 make the error second order.",
        "At N = 10⁶ the printed pad is off by {printed} × N; with the symmetric pads the error is {measured}.",
        (("N = 10⁶", "PAD = 1000000.0"),),
    ),
    Correction(
        "akyurek-eq-118-120",
        "A product by GELUs",
        "The products come back with the output weights ±W_o N √(π/2).",
        "Both factors were divided by N before, so the weights are ±W_o N² √(π/2).",
        "With the printed weights the layer is off by {printed}; with N² by {measured}.",
    ),
)
