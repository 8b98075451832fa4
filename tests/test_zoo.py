"""The zoo: what its cards say is what its learners do, and damage is found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from innergrad import lab, zoo
from innergrad.config import to_table
from innergrad.errors import InputError
from innergrad.lab.evaluation import prompts
from test_lab_cli import call, good

NAMES = zoo.names()
VECTORS = [name for name in NAMES if zoo.card(name)["learner"]["table"]["kind"] != "table"]
MOST, MOST_FILES = 25 * 10**6, 50 * 10**6  # bytes of all weights, and of all working files
ROOT = Path(__file__).parent.parent


def test_it_is_small_and_whole() -> None:
    assert "networks-3-softmax" in NAMES
    sizes = [zoo.weights(name).stat().st_size for name in NAMES]
    assert sum(sizes) < MOST
    assert sizes == [zoo.card(name)["weights"]["bytes"] for name in NAMES]


def test_the_repository_is_small() -> None:
    """The working files, those that git lists and new ones that it does not ignore, have less than 50 MB together. What
    .git has, the history, is not counted: who clones it waits for that too.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("the tests of a package: there is no repository")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    paths = [ROOT / name for name in set(names) if name]
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    assert sum(zoo.weights(name).stat().st_size for name in NAMES) < sum(sizes) < MOST_FILES


@pytest.mark.parametrize("name", [name for name in NAMES if zoo.card(name)["learner"]["table"]["kind"] == "gpt"])
def test_a_learner_does_what_its_card_says(name: str) -> None:
    """On a few prompts its error over that of the best predictor is about the card's; it was loaded without a run."""
    card = zoo.card(name)
    learner, experiment = lab.load_pretrained(name)
    for part in ("task", "learner"):  # settings that came later have their defaults
        assert card[part]["table"].items() <= to_table(getattr(experiment, part)).items()
    rows = {row["k"]: row for row in card["numbers"]["rows"]}
    best = experiment.task.best()
    x, y = prompts(experiment.task, 24, max(rows) + 1, 5, 24, "cpu")
    errors = [(one(x, y) - y).square()[:, list(rows)].mean() for one in (learner.predict, best)]
    expected = sum(row["learner"] for row in rows.values()) / sum(row[best.name] for row in rows.values())
    assert float(errors[0] / errors[1]) == pytest.approx(expected, rel=0.15)


def test_the_learner_of_linear_functions_keeps_its_claims() -> None:
    """Those of its entry, on the card; and where least squares is exact, on a few prompts of other seeds."""
    from zoo import ENTRIES  # benchmarks/zoo.py

    claims = ENTRIES["linear-20"].claims
    rows = {row["k"]: row for row in zoo.card("linear-20")["numbers"]["rows"]}
    assert all(rows[k]["learner"] <= most for k, most in claims.items())
    learner, experiment = lab.load_pretrained("linear-20")
    x, y = prompts(experiment.task, 48, 41, 5, 24, "cpu")
    errors = (learner.predict(x, y) - y).square().mean(0) / experiment.task.scale**2
    assert float(errors[40]) <= claims[40]


def test_the_command_lists_and_shows(tmp_path: Path) -> None:
    assert [row["name"] for row in json.loads(good("zoo", "--json"))] == NAMES
    assert all(name in good("zoo") for name in NAMES)
    card = json.loads(good("zoo", NAMES[0], "--json", "--out", tmp_path / "card.json"))
    assert card == zoo.card(NAMES[0])
    assert json.loads((tmp_path / "card.json").read_text()) == {"made_by": "innergrad zoo", **card}
    printed = good("zoo", NAMES[0])
    assert card["weights"]["sha256"] in printed
    for name in NAMES:
        command = zoo.card(name)["training"]["command"]
        assert command in " ".join(good("zoo", name).split())
        for one in command.split(" && "):
            assert " --out " in one, one  # all of these scripts ask for a folder
        scripts = re.findall(r"python (?:-m )?(\S+)", command)
        assert scripts
        assert all((ROOT / one).is_file() or find_spec(one) for one in scripts)
    assert all(word in printed for word in ("task:", "training:", "limit:", "within-prompt R²"))
    assert good("zoo", "--quiet") == ""


def test_a_learner_is_measured_by_its_name() -> None:
    arguments = ("--prompts", 4, "--points", 4, "--baselines", "none", "--json", "--device", "cpu")
    found = json.loads(good("evaluate", "networks-3-softmax", *arguments))
    assert found["step"] == zoo.card("networks-3-softmax")["training"]["steps"]


def test_names_that_are_misspelt() -> None:
    for command in ("zoo", "evaluate"):
        called = call(command, "networks-3-sofmax")
        assert (called.code, called.err.count("\n")) == (2, 1)
        assert "did you mean networks-3-softmax?" in called.err
    with pytest.raises(InputError, match="unknown learner; got 'garg'; allowed: "):
        lab.load_pretrained("garg")


def test_damage_is_found(tmp_path: Path) -> None:
    name = NAMES[0]
    for end in (zoo.CARD, zoo.WEIGHTS):
        shutil.copyfile(zoo.FOLDER / f"{name}{end}", tmp_path / f"{name}{end}")
    assert zoo.weights(name, tmp_path).is_file()
    path = tmp_path / f"{name}{zoo.WEIGHTS}"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"the weights of {name} are damaged; got SHA-256 "):
        zoo.weights(name, tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="are missing"):
        zoo.weights(name, tmp_path)
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InputError, match=r"the card empty\.json is damaged; got no name, title"):
        zoo.card("empty", tmp_path)


def test_precision_is_said() -> None:
    """8 bits may cost five per cent of the error: of an error of 1e-4, one per cent is less than they can keep. Of
    tables they may cost .003 of R^2 or of accuracy.
    """
    for name in NAMES:
        about = zoo.card(name)["weights"]
        assert about["bits"] in (8, 16)
        if about["bits"] == 8:
            key, most = ("error_8_over_16", 1.05) if name in VECTORS else ("lost_by_8_bits", 0.003)
            assert max(about[key].values()) <= most
        assert all(parameter.dtype == torch.float32 for parameter in lab.load_pretrained(name)[0].parameters())


def test_the_script_trains_measures_and_shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes is what the package reads; a claim that fails ends it with an error."""
    import zoo as script

    short = replace(script.RECIPE, steps=20, batch=4, precision="fp32", optimiser=lab.Optimiser("muon", warmup=8))
    shape = lab.GPTConfig(n_layers=1, d_model=16, n_heads=2, d_mlp=16)
    one = lab.Experiment("tiny", 0, 51, lab.Linear(d=2), shape, short)
    monkeypatch.setitem(script.ENTRIES, "tiny", script.Entry("a title", "a task", one, ("a limit",), {20: 10.0}))
    script.train("tiny", tmp_path, 600.0, "cpu", 16)
    card = zoo.card("tiny", tmp_path)
    assert zoo.weights("tiny", tmp_path).stat().st_size == card["weights"]["bytes"]
    assert [row["k"] for row in card["numbers"]["rows"]] == [10, 20, 30, 40, 50]
    assert (card["training"]["steps"], card["training"]["planned"], card["data"]["prompts"]) == (20, 20, 80)
    learner, experiment = lab.load_learner(zoo.weights("tiny", tmp_path))
    found = lab.evaluate(learner.predict, experiment.task, n_prompts=16, n_points=51, seed=1)
    shown = {row["k"]: row["learner"] for row in card["numbers"]["rows"]}
    assert shown[20] == pytest.approx(found.curves["model"]["squared error"].at(20)[0], rel=1e-5)
    monkeypatch.setitem(script.ENTRIES, "tiny", script.Entry("a title", "a task", one, (), {20: 1e-9}))
    with pytest.raises(SystemExit, match="a claim of the entry does not hold"):
        script.train("tiny", tmp_path, 600.0, "cpu", 16)
