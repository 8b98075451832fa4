"""Names that a user of the command line chooses among. They are here so that a misspelt one is answered at once: the
classes behind them need torch. A test compares them with the library's own.
"""

from __future__ import annotations

TARGETS = {  # and their variants, the default first
    "relu": ("literal", "compact", "shallow", "narrow"),
    "kernel": ("attention",),
    "softmax": ("sink", "mean", "lookup", "markers"),
    "sigma": ("backprop", "recursion"),
    "gpt": ("pre-ln", "raw", "markers"),
    "llama": ("chain", "wide", "widest", "shortest"),
}
ACTIVATIONS = ("tanh", "sigmoid", "softplus", "gelu", "silu", "sin", "relu", "leaky_relu", "relu6")
OUTPUTS = ("linear", "activation")
LOSSES = ("squared", "log-cosh", "pseudo-huber", "logistic", "softmax")
KERNELS = ("linear", "relu", "exp", "softmax")
STEP_RULES = ("constant", "chebyshev")
FORMS = ("rls", "sherman-morrison")
SIGMAS = ("gelu", "tanh", "sigmoid", "softplus", "silu", "cos")
OPTIMISERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine", "warmup-cosine", "step-decay")

EXECUTORS = ("auto", "plain", "dense", "fused")
DTYPES = ("float64", "float32")
OUTSIDE = ("error", "flag")
FORMATS = ("hf", "onnx")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "stablelm", "smollm3")
DEMOS = ("llama", "relu")
SUBJECTS = ("training", "diffusion")  # of the demo
ALGORITHMS = ("gradient-descent", "functional", "sgd", "rls", "grid")
THEOREMS = ("neural-networks-2", "neural-networks-3", "neural-networks-4")
BENCHES = ("executor",)
ENGINES = ("pretrained", "gd", "ridge", "kernel")  # of innergrad fit
FIGURES = (
    "mixtures-relu",
    "mixtures-softmax",
    "parameters-relu",
    "parameters-softmax",
    "depth",
    "positions",
    "shapes-relu",
    "shapes-softmax",
    "shapes-mixed",
    "balls",
    "smooth",
    "kernels",
    "kernel-depth",
    "identity-softmax",
    "identity",
    "identity-free",
    "heads",
    "conditioning",
    "linear-algorithms",
    "linear-noise",
    "linear-sizes",
    "linear-probes",
    "linear-inits",
)

RUN_CONFIG, RUN_LOG = "config.toml", "log.jsonl"  # files of a run of the lab
SWEEP = "sweep.json"  # and of a sweep
FIT = "fit.json"  # and of a fitted table
FIT_FILES = (FIT, "demonstrations.csv", "validation.csv")
PREDICTION_FILES = ("predictions.json", "predictions.csv")
