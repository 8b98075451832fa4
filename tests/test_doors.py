"""Nothing is replaced that the same command did not write, and nothing that it reads: every command, every output."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import innergrad as ig
from innergrad.cli import data as csv_data
from innergrad.errors import InputError
from innergrad.files import Writer, digest, made_by, write_whole
from innergrad.model.storage import seal
from test_cli import call

ROWS = "a,b,y\n1,0.2,0.3\n0.5,0.1,0.2\n0.1,0.2,\n"
PNG = b"\x89PNG\r\n\x1a\n" + b"a picture of somebody's"
SETTINGS = ("--sizes", "2,3,1", "--epsilon", "0.01", "--n-examples", "6", "--steps", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors")
    (folder / "data.csv").write_text(ROWS)
    assert call("compile", *SETTINGS, "--out", folder / "model", "-q").code == 0
    options = {"target": "gpt", "epsilon": 1e-3, "n_examples": 4}
    ig.compile(ig.GradientDescent(ig.Network([2, 2, 1]), steps=1), **options).save(folder / "gpt")
    return folder


Arguments = Callable[[Path, Path], list[object]]  # the folder with models and data, a folder for outputs -> arguments
#: command -> its arguments, and the files that it writes
OUTPUTS: dict[str, tuple[Arguments, list[str]]] = {
    "compile": (lambda m, to: ["compile", *SETTINGS, "--out", to], ["config.json", "weights.safetensors"]),
    "run": (lambda m, to: ["run", m / "model", "--data", m / "data.csv", "--out", to], ["predictions.csv", "run.json"]),
    "verify": (lambda m, to: ["verify", m / "model", "--prompts", 1, "--out", to / "report.json"], ["report.json"]),
    "figure": (
        lambda m, to: ["verify", m / "model", "--prompts", 1, "--explain", "--figure", to / "bounds.png"],
        ["bounds.png"],
    ),
    "cost": (lambda m, to: ["cost", m / "model", "--out", to / "cost.json"], ["cost.json"]),
    "theorem": (
        lambda m, to: ["cost", "--theorem", "neural-networks-2", "--heads", 1e6, "--out", to / "t.json"],
        ["t.json"],
    ),
    "bench": (
        lambda m, to: ["bench", "--points", "4,2,2", "--repeats", 1, "--out", to / "bench.json"],
        ["bench.json"],
    ),
    "export": (
        lambda m, to: ["export", m / "gpt", "--out", to],
        ["config.json", "model.safetensors", "innergrad.json"],
    ),
}
FOREIGN = {
    "text": b"somebody's notes",
    "csv": ROWS.encode(),
    "json": b'{"mine": 1}',
    "of another command": b'{\n "made_by": "innergrad sweep"\n}\n',
    "picture": PNG,
    "nothing": b"",
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_file_of_somebody_is_not_replaced(command: str, model: Path, tmp_path: Path) -> None:
    """Of each file that the command would write, and each kind of content: exit code 2, one line, and all as it was."""
    arguments, names = OUTPUTS[command]
    for name in names:
        for kind, content in FOREIGN.items() if name == names[0] else [("text", FOREIGN["text"])]:
            (tmp_path / name).write_bytes(content)
            done = call(*arguments(model, tmp_path), "-q")
            assert (done.code, done.out) == (2, ""), (name, kind)
            assert "not replaced" in done.err, (name, kind)
            assert "--force" in done.err, (name, kind)
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: content}, (name, kind)
        (tmp_path / name).unlink()


@pytest.mark.parametrize("command", OUTPUTS)
def test_the_commands_own_files_are_replaced_and_others_by_force(command: str, model: Path, tmp_path: Path) -> None:
    arguments, names = OUTPUTS[command]
    for _ in range(2):
        assert call(*arguments(model, tmp_path), "-q").code == 0
    assert {*names} <= {path.name for path in tmp_path.iterdir()}
    for name in names:
        (tmp_path / name).write_bytes(b"somebody's notes")
    done = call(*arguments(model, tmp_path), "-q", "--force")
    assert (done.code, done.err) == (0, "")
    assert all((tmp_path / name).read_bytes() != b"somebody's notes" for name in names)
    assert not list(tmp_path.glob(".*.part"))


def _hard_link(path: Path) -> None:
    (path.parent.parent / "other").write_text("mine")
    os.link(path.parent.parent / "other", path)


#: what may stand where a file is to be written, and is never a file of the command
IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a folder with files": lambda path: (path.mkdir(), (path / "notes").write_text("mine")),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a folder": lambda path: ((path.parent.parent / "there").mkdir(), path.symlink_to("../there")),
    "a pipe that nobody reads": lambda path: os.mkfifo(path),
}


def _all(folder: Path) -> dict[str, object]:
    """Everything below a folder."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else path.stat().st_mode
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("command", OUTPUTS)
def test_what_is_no_file_is_not_written_to(command: str, model: Path, tmp_path: Path) -> None:
    """Before any work, also by force: exit code 2, one line, and all as it was."""
    arguments, names = OUTPUTS[command]
    for number, (name, (kind, put), force) in enumerate(
        itertools.product(names, IN_THE_WAY.items(), ((), ("--force",)))
    ):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        put(folder / "out" / name)
        before = _all(folder)
        done = call(*arguments(model, folder / "out"), "-q", *force)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), (name, kind, done.err)
        assert _all(folder) == before, (name, kind)


@pytest.mark.parametrize("command", OUTPUTS)
def test_other_names_of_a_file_keep_what_it_had(command: str, model: Path, tmp_path: Path) -> None:
    """Hard links: a result is a new file, also where an old one is replaced."""
    arguments, names = OUTPUTS[command]
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / "out" / name).unlink(missing_ok=True)
        _hard_link(tmp_path / "out" / name)
        assert call(*arguments(model, tmp_path / "out"), "-q", "--force").code == 0
        assert (tmp_path / "other").read_text() == "mine"
        (tmp_path / "other").unlink()


TRAIN = [f"--set={change}" for change in ("train.steps=2", "train.batch=2", "n_points=3", "train.checkpoint_every=1")]
PLACES = ["checkpoints", "tensorboard", "smoke-seed=0", "smoke-seed=1"]  # folders, which may be there
LAB: dict[str, tuple[list[object], list[str]]] = {
    "train": (["train"], [*PLACES[:2], ".lock", ".begun", "config.toml", "manifest.json", "log.jsonl"]),
    "sweep": (["sweep", "--grid", "seed=0,1"], ["sweep.json", *PLACES[2:]]),
}


@pytest.mark.parametrize("command", LAB)
def test_what_is_in_the_way_of_a_training_is_said_before_it(command: str, tmp_path: Path) -> None:
    """Also of hidden files, and of a folder of a later run of a sweep."""
    first, names = LAB[command]
    config = Path(__file__).parent.parent / "configs" / "smoke.toml"
    ways = {"a file": lambda path: path.write_text("mine"), **IN_THE_WAY}
    for number, (name, (kind, put)) in enumerate(itertools.product(names, ways.items())):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        put(folder / "out" / name)
        if name in PLACES and (folder / "out" / name).is_dir():
            continue
        before = _all(folder)
        done = call(*first, config, *TRAIN, "--out", folder / "out", "--device", "cpu", "-q")
        assert (done.code, done.out) == (2, ""), (name, kind, done.err)
        assert _all(folder) == before, (name, kind)


@pytest.mark.parametrize("command", ["run", pytest.param("export", marks=pytest.mark.soak)])
def test_a_command_that_is_killed_while_it_writes_can_be_given_again(
    command: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every rename, of a first result and of one that replaces another: no --force is needed."""
    arguments, _ = OUTPUTS[command]
    replaced, count = os.replace, 0

    class Killed(BaseException):
        pass

    def until(stop: int) -> Callable[..., None]:
        left = iter(range(stop))

        def rename(self: Path, target: Path) -> None:
            if next(left, None) is None:
                raise Killed
            replaced(self, target)

        return rename

    other, notes = model / "other", {"run": "run.json", "export": "innergrad.json"}
    assert call("compile", *SETTINGS[:-1], 2, "--out", other, "-q").code == 0  # its results are others
    for earlier in (False, True):
        for stop in range(20):
            out = tmp_path / f"{earlier}-{stop}"
            given = arguments(model, out)
            if earlier:
                assert call(*given, "-q").code == 0
                given = [other if one == model / "model" else one for one in given]
            with monkeypatch.context() as patch:
                patch.setattr(Path, "replace", until(stop))
                try:
                    assert call(*given, "-q").code == 0
                    break
                except Killed:
                    count += 1
            again = call(*arguments(model, out), "-q")
            assert (again.code, again.err) == (0, "")
            note = json.loads((out / notes[command]).read_text())
            assert note["files"] == {name: digest(out / name) for name in note["files"]}
            assert "files_before" not in note
    assert count >= 8


def test_two_outputs_are_two_files(model: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.png"
    done = call("verify", model / "model", "--explain", "--figure", both, "--out", tmp_path / "." / "both.png")
    assert done.code == 2
    assert "two outputs are one file" in done.err


def test_what_a_command_reads_is_never_written_to(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "predictions.csv"
    data.write_text(ROWS)
    link = tmp_path / "link.csv"
    link.symlink_to(data)
    own, before = model / "model", {path: path.read_bytes() for path in (model / "model").iterdir()}
    for arguments in (
        ["run", own, "--data", data, "--out", tmp_path],
        ["run", own, "--data", link, "--out", tmp_path],
        ["run", own, "--data", model / "data.csv", "--query", data, "--out", tmp_path],
        ["verify", own, "--data", data, "--out", data],
        ["verify", own, "--out", own / "config.json"],
        ["cost", own, "--out", own / "weights.safetensors"],
    ):
        done = call(*arguments, "--force", "-q")
        assert done.code == 2, arguments
        assert "is read by this command" in done.err
    assert data.read_text() == ROWS
    assert {path: path.read_bytes() for path in before} == before


def test_an_edited_result_is_somebodys(model: Path, tmp_path: Path) -> None:
    """A CSV cannot say who wrote it; its digest can."""
    arguments = ["run", model / "model", "--data", model / "data.csv", "--out", tmp_path, "-q"]
    assert call(*arguments).code == 0
    listed = json.loads((tmp_path / "run.json").read_text())["files"]
    assert listed == {name: digest(tmp_path / name) for name in ("predictions.csv", "weights.csv")}
    (tmp_path / "weights.csv").write_text("mine\n")
    assert call(*arguments).code == 2
    assert (tmp_path / "weights.csv").read_text() == "mine\n"


def test_a_folder_that_is_no_model_is_not_saved_into(model: Path, tmp_path: Path) -> None:
    """In Python too."""
    tf = ig.load(model / "model")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="are no model of innergrad's"):
        tf.save(tmp_path)
    tf.save(tmp_path, force=True)
    tf.save(tmp_path)


def test_outputs_that_are_no_files(tmp_path: Path) -> None:
    """/dev/null, and a link, which stays a link."""
    writer = Writer("cost")
    writer.json(Path(os.devnull), {"a": 1})
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    writer.json(target, {"a": 1})
    link.symlink_to(target)
    writer.json(link, {"a": 2})
    assert link.is_symlink()
    assert made_by(target) == "cost"
    assert json.loads(target.read_text())["a"] == 2
    with pytest.raises(InputError, match="one file"):
        writer.json(tmp_path, {})


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.json", "old")]


# --------------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("text", ["1_0", "0x10", "１２", "1 2", "1,5", "--1", "1e", ".", "e5", "1.2.3", "٣", "1f"])
def test_what_python_or_nobody_takes_for_a_number_is_refused(text: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f'a,b,y\n1,"{text}",3\n')
    done = call("run", model / "model", "--data", path)
    assert (done.code, done.out) == (2, "")
    assert "line 2" in done.err


@pytest.mark.parametrize("text", ["1", "+1", "-1.5", "1.", ".5", "1e-3", " 7 ", "1E+2"])
def test_numbers(text: str) -> None:
    assert csv_data._is_number(text)
    float(text)


def test_a_pipe_is_refused_and_does_not_block(model: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    done = call("run", model / "model", "--data", pipe)
    assert done.code == 2
    assert "no regular file" in done.err


def test_no_bit_of_a_saved_model_can_flip_without_a_word(model: Path, tmp_path: Path) -> None:
    """Anywhere in either file; and a folder that was changed on purpose is sealed."""
    source = model / "model"
    content = {name: (source / name).read_bytes() for name in ("config.json", "weights.safetensors")}
    generator = random.Random(0)
    for number in range(300):
        name = ("config.json", "weights.safetensors")[number % 2]
        changed = bytearray(content[name])
        place = generator.randrange(len(changed))
        changed[place] ^= 1 << generator.randrange(8)
        for other, text in content.items():
            (tmp_path / other).write_bytes(changed if other == name else text)
        with pytest.raises(InputError):
            ig.load(tmp_path)
    (tmp_path / "config.json").write_bytes(content["config.json"])
    (tmp_path / "weights.safetensors").write_bytes(content["weights.safetensors"])
    tensors = {name: value.clone() for name, value in load_file(tmp_path / "weights.safetensors").items()}
    tensors["body.0.0.W_Q.value"][0] *= 2.0
    save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match=r"was changed after it was saved; got weights.safetensors; .*seal"):
        ig.load(tmp_path)
    seal(tmp_path)
    assert not ig.load(tmp_path).verify(prompts=1).passed


def test_a_hundred_million_steps_are_one_loop_or_refused() -> None:
    """Before anything is built."""
    net = ig.Network([1, 1])
    (loop,) = ig.GradientDescent(net, steps=10**8).program(ig.Options(n_examples=2)).body
    assert loop.count == 10**8
    for algorithm in (ig.Adam(net, steps=10**8), ig.GradientDescent(net, steps=10**8, batches=[[0], [1]])):
        with pytest.raises(
            InputError, match=r"writes out steps that differ.*got 100000000 steps; allowed: at most 10,000"
        ):
            algorithm.program(ig.Options(n_examples=2))


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "arguments"),
    [
        ("a.toml", f"a = {NESTED}", ("train", "a.toml")),
        ("a.toml", "a." * 100_000 + "b = 1", ("train", "a.toml")),
        ("a.toml", f"[algorithm]\nsteps = {NESTED}", ("compile", "--config", "a.toml", "--out", "out")),
        ("config.json", NESTED, ("verify", ".")),
        ("config.json", '{"a":' * 100_000, ("run", ".", "--data", "a.csv")),
        ("manifest.json", NESTED, ("train", ".", "--resume")),
        ("sweep.json", NESTED, ("sweep", "{configs}/smoke.toml", "--grid", "seed=0,1", "--out", ".")),
    ],
)
def test_what_is_nested_without_end_is_refused(
    name: str, content: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configs = Path(__file__).parent.parent / "configs"
    (tmp_path / "weights.safetensors").write_bytes(b"")
    (tmp_path / "config.toml").write_text((configs / "smoke.toml").read_text())
    (tmp_path / name).write_text(content)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = call(*(text.replace("{configs}", str(configs)) for text in arguments))
    assert (done.code, done.out) == (2, ""), done.err
    assert done.err.count("\n") == 1
    assert len(done.err) < 500
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_that_are_too_large_are_not_read(tmp_path: Path, model: Path) -> None:
    for name in ("a.toml", "a.csv", "config.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**40)  # sparse: a TiB that takes no room
    (tmp_path / "weights.safetensors").write_bytes(b"")
    for arguments in (
        ("train", tmp_path / "a.toml"),
        ("run", model / "model", "--data", tmp_path / "a.csv"),
        ("verify", tmp_path),
    ):
        done = call(*arguments)
        assert (done.code, done.out) == (2, "")
        assert "is too large; got 1,048,576 MiB" in done.err
    (tmp_path / "config.json").write_text((model / "model" / "config.json").read_text())
    with (tmp_path / "weights.safetensors").open("wb") as file:
        file.truncate(2**40)
    assert "needs 3072.0 GiB of memory" in call("verify", tmp_path).err
