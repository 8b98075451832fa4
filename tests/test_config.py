"""Configurations: what is written is what is read, and what is wrong is named."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from innergrad import manifest as manifests
from innergrad.config import Family, change, differences, load, parse, to_table, to_toml
from innergrad.errors import InputError, real


@dataclass(frozen=True)
class Shape:
    """A family."""

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Shape]]] = {}

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind
        Shape.kinds[kind] = cls


@dataclass(frozen=True)
class Disc(Shape, kind="disc"):
    radius: float = 1.0

    def __post_init__(self) -> None:
        real("radius", self.radius, above=0.0)


@dataclass(frozen=True)
class Pair(Shape, kind="pair"):
    first: Shape = field(default_factory=lambda: Disc(2.0))
    gap: float | None = 3.0
    second: Shape | None = None


@dataclass(frozen=True)
class Inner:
    size: int = 2
    name: str = "a"


@dataclass(frozen=True)
class Outer:
    steps: int
    rate: float = 0.1
    flag: bool = False
    mode: Literal["slow", "fast"] = "slow"
    betas: tuple[float, float] = (0.9, 0.99)
    sizes: tuple[int, ...] = ()
    inner: Inner = field(default_factory=lambda: Inner(size=7))
    inners: tuple[Inner, ...] = ()
    shape: Shape = field(default_factory=Disc)
    clip: float | None = None
    top: float | None = 1.0
    width: int | Literal["full"] = "full"
    kind: str = "no family"


numbers = st.floats(allow_nan=False)
texts = st.text(max_size=8).filter(lambda text: "\r" not in text)
shapes = st.recursive(
    st.builds(Disc, st.floats(0.01, 1e99)),
    lambda below: st.builds(Pair, below, st.none() | numbers, st.none() | below),
    max_leaves=3,
)
inners = st.builds(Inner, st.integers(-(2**62), 2**62), texts)
outers = st.builds(
    Outer,
    st.integers(-(2**62), 2**62),
    numbers,
    st.booleans(),
    st.sampled_from(["slow", "fast"]),
    st.tuples(numbers, numbers),
    st.lists(st.integers(-99, 99)).map(tuple),
    inners,
    st.lists(inners, max_size=2).map(tuple),
    shapes,
    st.none() | numbers,
    st.none() | numbers,
    st.just("full") | st.integers(-9, 9),
)


@given(outers)
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_what_is_read(config: Outer) -> None:
    table = to_table(config)
    assert parse(Outer, table) == config
    assert parse(Outer, json.loads(json.dumps(table))) == config
    assert parse(Outer, tomllib.loads(to_toml(config))) == config
    assert tomllib.loads(to_toml(table)) == table


def test_defaults_families_and_partial_tables() -> None:
    assert parse(Outer, {"steps": 3}) == Outer(3)
    assert parse(Outer, {"steps": 3, "inner": {"name": "b"}}).inner == Inner(7, "b")  # 7: the field's default, not 2
    assert parse(Outer, {"steps": 3, "shape": {"radius": 2}}).shape == Disc(2.0)  # the default's kind
    assert parse(Outer, {"steps": 3, "shape": {"kind": "pair"}}).shape == Pair()
    assert parse(Outer, {"steps": 3, "shape": {"kind": "pair", "first": {"kind": "disc"}}}).shape == Pair(Disc(2.0))
    assert parse(Outer, {"steps": 3, "shape": {"kind": "pair", "gap": "none"}}).shape == Pair(gap=None)
    assert isinstance(parse(Outer, {"steps": 3, "rate": 1}).rate, float)
    assert parse(Outer, {"steps": 3, "width": 1}).width == 1
    assert parse(Outer, {"steps": 3, "rate": math.inf}).rate == math.inf
    assert parse(Pair, {"gap": 1}) == Pair(gap=1.0)


def test_changes(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('steps = 3\ninners = [{ size = 1 }, { size = 2 }]\n[shape]\nkind = "disc"\nradius = 5\n')
    changes = ["rate=1e-3", "mode=fast", "betas=[0.5, 0.6]", "inners.1.name=x y", "shape.radius=6", "inner.name='3'"]
    config = load(Outer, path, changes)
    assert (config.rate, config.mode, config.betas) == (1e-3, "fast", (0.5, 0.6))
    assert config.inners == (Inner(1), Inner(2, "x y"))
    assert (config.shape, config.inner) == (Disc(6.0), Inner(7, "3"))
    assert load(Outer, path, ["shape.kind=pair", "shape.gap=1"]).shape == Pair(
        gap=1.0
    )  # the radius is not carried over
    assert load(Outer, path, ["top=none"]).top is None
    assert load(Outer, path, ["inner.name=1\nsize = 2"]).inner == Inner(7, "1\nsize = 2")  # one change sets one key
    assert load(Outer, path, ["rate=1", "rate=2"]).rate == 2.0
    assert load(Outer, path, ["shape={kind='pair'}", "shape.first.radius=9"]).shape == Pair(Disc(9.0))


def test_a_change_keeps_the_rest() -> None:
    pair = Outer(3, betas=(0.1, 0.2), shape=Pair(Pair(Disc(4.0), gap=None), gap=5.0), mode="fast", kind="x")
    assert change(pair, []) == pair
    assert change(pair, ["shape.first.first.radius=6"]).shape == Pair(Pair(Disc(6.0), gap=None), gap=5.0)
    assert change(pair, ["shape.first.kind=disc"]).shape == Pair(Disc(), gap=5.0)
    assert change(pair, ["shape.second.kind=disc"]).shape == Pair(pair.shape.first, gap=5.0, second=Disc())  # type: ignore[attr-defined]
    assert change(pair, ["betas.1=3"]).betas == (0.1, 3.0)
    assert change(pair, ["kind=y"]) == Outer(3, betas=(0.1, 0.2), shape=pair.shape, mode="fast", kind="y")


@pytest.mark.parametrize(
    ("text", "sets", "words"),
    [
        ("steps = 3\nrat = 1", (), ["run.toml", "unknown key rat", "allowed: steps, rate,", "did you mean rate?"]),
        ("steps = 3\n[inner]\nsiez = 1", (), ["run.toml", "unknown key inner.siez", "size, name", "inner.size?"]),
        ("steps = 3", ("inner.siez=1",), ["--set inner.siez=1: unknown key inner.siez"]),
        ("steps = 3\n[shape]\nkind='dics'", (), ["unknown shape.kind", "'dics'", "disc, pair", "did you mean disc?"]),
        ("steps = 3\n[shape]\nkind='disc'\ngap=1", (), ["unknown key shape.gap", "allowed: kind, radius"]),
        ("steps = 3", ("shape.kid=disc",), ["unknown key shape.kid", "did you mean shape.kind?"]),
        ("rate = 3", (), ["run.toml", "steps is missing"]),
        ("steps = 3.0", (), ["steps is wrong", "got 3.0", "an integer"]),
        ("steps = true", (), ["steps is wrong", "got True", "an integer"]),
        ("steps = 3\nrate = true", (), ["rate is wrong", "a number"]),
        ("steps = 3\nrate = '1'", (), ["rate is wrong", "got '1'", "a number"]),
        ("steps = 3\nflag = 1", (), ["flag is wrong", "true or false"]),
        ("steps = 3\nmode = 'fats'", (), ["mode is wrong", "'fats'", "slow, fast"]),
        ("steps = 3\nbetas = [1]", (), ["betas has 2 entries", "got 1"]),
        ("steps = 3\nsizes = [1, 'a']", (), ["sizes.1 is wrong", "an integer"]),
        ("steps = 3\nsizes = 1", (), ["sizes is wrong", "a list"]),
        ("steps = 3\ninner = 1", (), ["inner is a table", "got 1"]),
        ("steps = 3\nclip = 'x'", (), ["clip is wrong", "a number"]),
        ("steps = 3\nwidth = 'x'", (), ["width is wrong", "an integer or full"]),
        ("steps = 1979-05-27", (), ["steps is wrong", "an integer"]),
        ("steps = 3\nsteps = 3", (), ["not TOML", "line 2"]),
        ("steps = 3\n[shape]\nradius = -1", (), ["run.toml: shape: radius must be a positive number", "got -1.0"]),
        ("steps = 3\n\nrate = = 1", (), ["run.toml", "not TOML", "line 3"]),
        ("steps = 3", ("rate",), ["--set takes key=value", "'rate'"]),
        ("steps = 3", ("steps.a=1",), ["--set steps.a=1: steps is wrong", "an integer"]),
        ("steps = 3", ("inner=1", "inner.size=2"), ["--set inner.size=2", "got 1"]),
        ("steps = 3", ("inner.=2",), ["key=value"]),
        ("steps = 3\nsizes = [1]", ("sizes.1=1",), ["--set sizes.1=1", "not in the list", "0 to 0"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, sets: tuple[str, ...], words: list[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load(Outer, path, sets)
    assert [word for word in words if word not in str(error.value)] == [], error.value


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the configuration .*absent\.toml"):
        load(Outer, tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot read"):
        load(Outer, tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        load(Outer, tmp_path / "binary.toml")


def test_a_family_without_a_default_needs_its_kind() -> None:
    with pytest.raises(InputError, match=r"kind is missing; allowed: disc, pair"):
        parse(Shape, {})


def test_a_kind_has_one_class() -> None:
    class Animal(Family):
        pass

    def cell() -> type[Animal]:
        class Cat(Animal, kind="cat"):
            pass

        return Cat

    first, second = cell(), cell()  # defined again, as in a notebook: the newer counts
    assert first is not Animal.kinds["cat"] is second
    with pytest.raises(InputError, match=r"two classes of kind 'cat'; got .*cell.<locals>.Cat and .*Lion"):

        class Lion(Animal, kind="cat"):
            pass

    class Plant(Family):
        pass

    class Catnip(Plant, kind="cat"):  # another family
        pass

    assert (Animal.kinds["cat"].__name__, Plant.kinds) == ("Cat", {"cat": Catnip})


def test_a_kind_that_nobody_has_may_be_ones_own() -> None:
    with pytest.raises(InputError, match=r"unknown kind; got 'star'.*--import FILE"):
        parse(Shape, {"kind": "star"})


def test_an_annotation_that_is_not_supported_is_a_mistake_of_the_programmer() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: complex = 0j

    with pytest.raises(TypeError, match="value"):
        parse(Odd, {"value": 1})


def test_differences() -> None:
    a, b = to_table(Outer(3)), to_table(Outer(3, rate=0.2, shape=Pair()))
    assert differences(a, a) == {}
    found = differences(a, b)
    assert found["rate"] == "0.1, not 0.2"
    assert found["shape.kind"] == "disc, not pair"
    assert found["shape.radius"] == "1.0, not absent"
    assert set(found) == {"rate", "shape.kind", "shape.radius", "shape.first.kind", "shape.first.radius", "shape.gap"}


# ------------------------------------------------------------------------------------------------------------ manifest


def test_the_manifest_says_what_made_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    argv = [f"{tmp_path}/bin/innergrad", "train", f"--out={tmp_path}/run", str(Path.cwd() / "a" / "b"), "--set=a=1"]
    monkeypatch.setattr(sys, "argv", argv)
    made = manifests.manifest({"experiments": [{"seed": 4, "task": {"seed": 1}}, {"seed": 4}]})
    text = json.dumps(made)
    assert made["seeds"] == [1, 4]
    assert made["command"] == ["innergrad", "train", "--out=run", "a/b", "--set=a=1"]
    assert {"python", "torch", "numpy", "innergrad"} <= made["versions"].keys()
    assert made["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert made["started"].endswith("+00:00")
    assert made["hardware"]["cores"] >= 1
    assert str(tmp_path) not in text
    assert str(Path.cwd()) not in text
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    if head.returncode == 0:
        assert made["git"]["commit"] == head.stdout.strip()


def test_the_commit_of_a_repository_around_an_installation_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(manifests, "__file__", str(tmp_path / "manifest.py"))
    assert manifests.manifest({})["git"] is None
