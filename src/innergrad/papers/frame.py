"""How an experiment of a paper is run, kept, judged and drawn.

    Study    trains and measures; its stages leave records in JSON files
    Figure   a view of a study's records: what the paper claims, rows over seeds, a verdict, a picture

Several figures can share a study: the learners of one training are measured for all of them. A record is written to
the disk as soon as it is there, so a run that is killed keeps what it has, and the same command goes on from there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.errors import InputError
from innergrad.files import Writer, make_folder, read_text, write_whole
from innergrad.lab.metrics import student
from innergrad.manifest import manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Record = dict[str, Any]
PARTS = {"about": dict, "notes": dict, "records": list}  # of a file of records
WRITER = "figures"  # the command whose files these are
REPRODUCED, PARTLY, NOT, UNCLEAR, OPEN = "reproduced", "partly", "not", "unclear", "open"
ENOUGH = 0.5  # of the planned steps: learners with fewer are not judged
SAID = {
    REPRODUCED: "reproduced",
    PARTLY: "partly reproduced",
    NOT: "not reproduced",
    UNCLEAR: "not resolved",
    OPEN: "not judged yet",
}


@dataclass(frozen=True)
class Clock:
    """How much of ``seconds`` is left since ``began``."""

    seconds: float = math.inf
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent


class Records:
    """The records of one stage, and notes about it, in one JSON file."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.rows: list[Record] = []
        self.notes: Record = {}
        self._lines: list[str] = []  # the rows as text
        if path.is_file():
            self._read()
        else:
            Writer(WRITER).check(path)

    def _read(self) -> None:
        found = read_records(self.path)
        then, now = (_flat(about) for about in (found["about"], json.loads(json.dumps(self.about))))
        apart = [f"{name} = {then[name]}" for name in then if name in now and then[name] != now[name]]
        if apart:
            hint = "choose another folder with --out"
            raise InputError(f"{self.path} has results of other settings", got=", ".join(apart), hint=hint)
        self.rows, self.notes = found["records"], found["notes"]
        self._lines = [json.dumps(row) for row in self.rows]

    def has(self, **key: Any) -> bool:
        """Whether there is a record with these entries."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, row: Record) -> None:
        self.rows.append(json.loads(line := json.dumps(row)))
        self._lines.append(line)
        self.write()

    def clear(self) -> None:
        """Forgets all records, not the notes: they are made again."""
        self.rows, self._lines = [], []

    def note(self, **entries: Any) -> None:
        self.notes |= entries
        self.write()

    def write(self) -> None:
        """The whole file, one line a record; readers see the old text or the new."""
        self.notes.setdefault("manifest", manifest({}))
        head = {"made_by": f"innergrad {WRITER}", "about": self.about, "notes": self.notes}
        lines = ",\n".join(self._lines)
        make_folder(self.path.parent)
        write_whole(self.path, json.dumps(head, indent=1)[:-2] + f',\n "records": [\n{lines}\n]}}\n')


def _flat(about: Mapping[str, Any]) -> Record:
    """What a stage is about, the sizes beside the rest. Sizes that one of two does not know yet are not compared."""
    return {**about, "sizes": None, **about.get("sizes", {})}


def read_records(path: Path) -> Record:
    """What :class:`Records` wrote: ``about``, ``notes``, ``records``."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in PARTS.items()):
        raise damaged(path, "no records of a study")
    if not all(isinstance(row, dict) for row in found["records"]):
        raise damaged(path, "records that are none")
    return found


def damaged(path: Path, got: str) -> InputError:
    return InputError(f"{path} is damaged", got=got, hint="move it away, and run the same command again")


@dataclass(frozen=True)
class Run:
    """Where and how a study runs: its sizes, the folder of its files, the device, the time it may take."""

    study: Study
    size: str
    out: Path
    device: str
    clock: Clock
    say: Callable[[str], None] = lambda line: None
    waiting: tuple[str, ...] = ()  # stages that are still to run, this one included
    steps: int | None = None  # of training, at most, if there are to be fewer than the sizes say

    @property
    def sizes(self) -> Any:
        return self.study.sizes[self.size]

    def records(self, stage: str) -> Records:
        """Those of a stage, which goes on from what is there."""
        name = self.study.shared.get(stage, self.study.name)
        about = {"study": name, "size": self.size, "stage": stage, "sizes": plain(self.sizes)}
        return Records(self.out / f"{name}.{stage}.json", about)

    def all_records(self) -> dict[str, Records]:
        return {stage: self.records(stage) for stage in self.study.stages}


Save = Callable[["Drawing"], None]
ENDS = ("png", "svg")
Stage = Callable[[Run], bool]  # whether it came to its end


@dataclass(frozen=True)
class Study:
    """Something to train and to measure. ``sizes``: full, quick (a CPU, minutes) and tiny (for tests).

    ``stages``: in the order of their value; each says whether it came to its end. ``shared``: stages that other studies
    have, too, and the name that their records have there and here.
    """

    name: str
    sizes: Mapping[str, Any]
    stages: Mapping[str, Stage]
    shared: Mapping[str, str] = field(default_factory=dict)

    def from_seed(self, seed: int) -> Study:
        """The same, the seeds of its learners beginning there."""
        sizes = {name: replace(one, seeds=tuple(seed + n for n in one.seeds)) for name, one in self.sizes.items()}
        return replace(self, sizes=sizes) if seed else self

    def run(self, run: Run, stages: Sequence[str] | None = None) -> bool:
        """Runs stages one after another, all by default, as long as there is time; whether all came to their ends."""
        unknown = [name for name in stages or () if name not in self.stages]
        if unknown:
            raise InputError("no such stage", got=", ".join(unknown), allowed=", ".join(self.stages))
        done, names = True, tuple(stages or self.stages)
        for number, name in enumerate(names):
            began = time.monotonic()
            done = self.stages[name](replace(run, waiting=names[number:])) and done
            run.say(f"{name}: {time.monotonic() - began:.0f} s, {run.clock.spent:.0f} s in all")
        return done


@dataclass(frozen=True)
class Finding:
    """One statement of the paper, and whether our numbers agree with it; None if these are not there yet.

    ``words``: what was found, with numbers; ``brief``: the number that decides, where that is long. ``paper``: the
    paper's own number, if it gives one. ``testable``: False for a statement that no numbers can decide, such as one
    about an R^2 that is not defined. Then ``holds`` is None. ``question``: the paper asks and claims nothing; ``holds``
    is our answer. ``ours``: the claim is ours, and not the paper's. ``unclear``: it does not hold, and is not refuted:
    what speaks for or against it is within its interval.
    """

    claim: str
    holds: bool | None
    words: str
    paper: str = ""
    testable: bool = True
    question: bool = False
    brief: str = ""
    ours: bool = False
    unclear: bool = False

    @property
    def counts(self) -> bool:
        """Whether it counts for or against a figure."""
        return self.testable and not self.question and not self.ours


@dataclass(frozen=True)
class Verdict:
    """``reproduced`` if all findings hold, ``partly`` if some do; if none does, ``not``, or ``unclear`` where none is
    refuted. ``open`` as long as one is open.

    Claims of ours, questions, and findings that cannot be tested do not count; if there are no others, the verdict is
    ``open``. ``size``: of the run. ``note``: what else a reader should know of any result.
    ``trained``: the steps of the learners that were cut short most, taken and planned. With too few of them the verdict
    is ``open``, whatever was found. ``seeds``: of the curve that has the fewest, there and planned.
    """

    findings: tuple[Finding, ...]
    size: str = "full"
    trained: tuple[int, int] = (1, 1)
    seeds: tuple[int, int] = (1, 1)
    note: str = ""

    @property
    def too_short(self) -> bool:
        return self.trained[0] < ENOUGH * self.trained[1]

    @property
    def missing(self) -> list[Finding]:
        """Claims that numbers will decide, and that are not there yet."""
        return [one for one in self.findings if one.holds is None and one.testable and not one.question]

    @property
    def word(self) -> str:
        judged = [one for one in self.findings if one.counts]
        held = [one.holds for one in judged]
        if self.too_short or self.missing or not held:
            return OPEN
        none = UNCLEAR if all(one.unclear for one in judged) else NOT
        return REPRODUCED if all(held) else PARTLY if any(held) else none

    @property
    def reason(self) -> str:
        """One sentence: what is open; else which claims do not hold; else, if all do, what the first is about."""
        if self.too_short:
            return "learners were trained for {:,} of {:,} steps, too few to be judged.".format(*self.trained)
        tested = [one for one in self.findings if one.counts] or self.findings
        opened = self.missing or [one for one in tested if one.holds is None]
        failed = [one for one in tested if not one.holds]
        if opened:
            return "; ".join(dict.fromkeys(one.words for one in opened)) + "."
        if not failed:
            return f"{tested[0].claim} ({tested[0].brief or tested[0].words})."
        kinds = {
            "not so": [one for one in failed if not one.unclear],
            "not resolved": [one for one in failed if one.unclear],
        }
        told = [f"{kind}: {'; '.join(one.claim for one in some)}" for kind, some in kinds.items() if some]
        return "; ".join(told) + (f" ({failed[0].brief or failed[0].words})." if len(failed) == 1 else ".")

    @property
    def caveat(self) -> str:
        """What a reader should know of any result; nothing if it is as planned."""
        found = [f"{self.size} sizes"] * (self.size != "full")
        taken, planned = self.trained
        found += [f"trained for {taken:,} of {planned:,} steps"] * (taken < planned)
        found += ["{} of {} seeds".format(*self.seeds)] * (self.seeds[0] < self.seeds[1])
        return ", ".join(found + [self.note] * bool(self.note))

    def to_json(self) -> Record:
        findings = [vars(one) for one in self.findings]
        return {"caveat": self.caveat, "verdict": self.word, "reason": self.reason, "findings": findings}


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: the claims, and how they are judged and drawn from the records of a study.

    ``rows``: aggregates over seeds. ``judge``: findings from the rows. ``numbers``: others that matter, from the rows.
    ``draw``: makes the picture of the rows, with a title, and hands it to a function that saves it. ``stages``: those
    of the study that it is made of; all by default. ``note``: from the rows, what is to be known of any verdict; it
    stands behind it in brackets.
    """

    name: str
    paper: str
    number: str
    title: str
    study: Study
    rows: Callable[[Any, Sequence[Record]], list[Record]]
    judge: Callable[[Any, Sequence[Record]], list[Finding]]
    numbers: Callable[[Any, Sequence[Record]], Record]
    draw: Callable[[Any, Sequence[Record], str, Save], None]
    stages: tuple[str, ...] = ()
    note: Callable[[Sequence[Record]], str] = lambda rows: ""

    def result(self, run: Run) -> Record:
        """Rows, verdict and cost, from the records that are in the folder of the run."""
        stages = {name: one for name, one in run.all_records().items() if name in (self.stages or self.study.stages)}
        records = [row for one in stages.values() for row in one.rows]
        if not records:
            raise InputError(f"there are no results of {self.study.name} in {run.out}", hint="run it first")
        try:
            rows = self.rows(run.sizes, records)
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            got = f"records that lack something, or have too much of it ({type(error).__name__}: {error})"
            raise damaged(run.out / f"{self.study.name}.*.json", got) from error
        cost = {name: {key: one.notes.get(key) for key in ("seconds", "device")} for name, one in stages.items()}
        for name, one in stages.items():
            cost |= {f"{name}, {part['device']}": part for part in one.notes.get("earlier", [])}
        about: Record = {"figure": self.name, "paper": self.paper, "number": self.number, "title": self.title}
        made = {name: one.notes.get("manifest") for name, one in stages.items()}
        notes = {name: one.notes["training"] for name, one in stages.items() if "training" in one.notes}
        trained = [(one["steps"], one["planned"]) for one in notes.values()]
        least = min(trained, key=lambda pair: pair[0] / pair[1], default=(1, 1))
        wanted = len(run.sizes.seeds)
        seeds = fewest_seeds(rows, wanted), wanted
        verdict = Verdict(tuple(self.judge(run.sizes, rows)), run.size, least, seeds, self.note(rows)).to_json()
        about |= {"size": run.size, "sizes": plain(run.sizes)}
        verdict |= {"numbers": self.numbers(run.sizes, rows)}
        return {**about, **verdict, "cost": cost, "training": notes, "manifest": made, "rows": rows}

    def finish(self, run: Run, *, force: bool = False) -> Record:
        """The result of a run as NAME.json, NAME.png and NAME.svg in its folder."""
        writer, index, names = Writer(WRITER, force=force), f"{self.name}.json", [f"{self.name}.{end}" for end in ENDS]
        found = self.result(run)
        make_folder(run.out)
        writer.check_all(run.out, names, index)
        with writer.several(run.out, index, found) as part:

            def save(drawing: Drawing) -> None:
                for end, name in zip(ENDS, names, strict=True):
                    figures.write(drawing, part(name), end, writer.mark)

            said = SAID[found["verdict"]] + (f" ({found['caveat']})" if found["caveat"] else "")
            self.draw(run.sizes, found["rows"], f"{self.title}\n{said}", save)
        return found


def fewest_seeds(rows: Iterable[Record], planned: int) -> int:
    """Those of the curve that has the fewest; as planned, if no row says."""
    return min((len(row["seeds"]) for row in rows if "seeds" in row), default=planned)


def plain(sizes: Any) -> Record:
    """The fields of sizes, for JSON."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(sizes).items()}


# ---------------------------------------------------------------------------------------------------------- statistics


def over_seeds(values: Iterable[Sequence[float | None]]) -> dict[str, list[float | None]]:
    """The mean of several curves, and its 95 % interval by Student's t; of one curve, no interval."""
    found: dict[str, list[float | None]] = {"value": [], "low": [], "high": []}
    for column in zip(*values, strict=True):
        known = [value for value in column if value is not None]
        mean = sum(known) / len(known) if len(known) == len(column) else None
        half = _half(known, mean) if mean is not None and len(known) > 1 else None
        found["value"].append(number(mean))
        found["low"].append(number(None if mean is None or half is None else mean - half))
        found["high"].append(number(None if mean is None or half is None else mean + half))
    return found


def _half(values: Sequence[float], mean: float) -> float:
    n = len(values)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return student(n - 1) * math.sqrt(variance / n)


def number(value: float | None, digits: int = 6) -> float | None:
    """So many digits, for JSON; None for what is not there or not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
