"""The lab: pretrain transformers on families of functions and measure them. task -> learner -> train -> evaluate.

In short:

    from innergrad import lab

    one = lab.Experiment(n_points=11, task=lab.Linear(d=5), learner=lab.GPTConfig(n_layers=3, d_model=64))
    result = lab.train([one], "out/run", device="cpu")          # a list of experiments is trained as one stack
    print(lab.evaluate_run("out/run").table())                   # beside the mean and the best predictor of the task
"""

from innergrad.lab import baselines, metrics, probes, tasks
from innergrad.lab.baselines import Predictor
from innergrad.lab.checks import check_predictor, check_task
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.differences import (
    Comparison,
    RidgeMatch,
    compare,
    implied_weight_difference,
    implied_weights,
    matching_ridge,
    squared_prediction_difference,
)
from innergrad.lab.evaluation import Evaluation, evaluate, evaluate_all, evaluate_run
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.garg import load_garg
from innergrad.lab.learners import (
    ClassAnswer,
    GPTConfig,
    KernelLearnerConfig,
    Learner,
    LearnerConfig,
    NumberAnswer,
    SampleLearnerConfig,
    TableConfig,
    TableLearner,
    from_compiled,
)
from innergrad.lab.many import evaluate_many, plot_evaluations
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.pictures import plot_loss
from innergrad.lab.pretrained import load_pretrained
from innergrad.lab.probes import ProbeConfig, Probes, probe
from innergrad.lab.sweep_pictures import plot_sweep
from innergrad.lab.sweeps import grid, read_experiments, sweep
from innergrad.lab.tasks import (
    Gaussian,
    Inputs,
    Linear,
    Networks,
    Prompts,
    TableClassification,
    TableRegression,
    Task,
    tables,
)
from innergrad.lab.training import Result, load_learner, snapshots, train
from innergrad.lab.wrapping import interleave, wrap

Stream = CounterRNG  # its old name, for tasks and scripts that were written with it
"""The old name of ``CounterRNG``.

Examples:
    >>> from innergrad import lab
    >>> lab.Stream is lab.CounterRNG
    True
"""

__all__ = [
    "ClassAnswer",
    "Comparison",
    "CounterRNG",
    "Curriculum",
    "Evaluation",
    "Experiment",
    "GPTConfig",
    "Gaussian",
    "Inputs",
    "KernelLearnerConfig",
    "Learner",
    "LearnerConfig",
    "Linear",
    "Networks",
    "NumberAnswer",
    "Optimiser",
    "Predictor",
    "ProbeConfig",
    "Probes",
    "Prompts",
    "Result",
    "RidgeMatch",
    "SampleLearnerConfig",
    "Stream",
    "TableClassification",
    "TableConfig",
    "TableLearner",
    "TableRegression",
    "Task",
    "TrainConfig",
    "baselines",
    "check_predictor",
    "check_task",
    "compare",
    "evaluate",
    "evaluate_all",
    "evaluate_many",
    "evaluate_run",
    "from_compiled",
    "grid",
    "implied_weight_difference",
    "implied_weights",
    "interleave",
    "load_garg",
    "load_learner",
    "load_pretrained",
    "matching_ridge",
    "metrics",
    "plot_evaluations",
    "plot_loss",
    "plot_sweep",
    "probe",
    "probes",
    "read_experiments",
    "snapshots",
    "squared_prediction_difference",
    "sweep",
    "tables",
    "tasks",
    "train",
    "wrap",
]
