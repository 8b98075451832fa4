"""Makes houses.csv and new-houses.csv: houses that do not exist, as a spreadsheet in Germany would write them.

    python examples/houses.py

The price per square metre depends on the district, the age and the energy class; large houses cost less per square
metre, a garden adds, prices rise by 4% a year. A factor of about 8% is chance: no method can know it. The asked prices
of the new houses are off by about 12% more.
"""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from pathlib import Path

HERE = Path(__file__).parent
DISTRICTS = {"Altstadt": 4600, "Hafen": 3900, "Nordend": 3300, "Weststadt": 2900, "Industriepark": 2100}
ENERGY = {"A": 1.08, "B": 1.04, "C": 1.0, "D": 0.95, "E": 0.88}
HEADER = ["no", "sold", "district", "area", "rooms", "built", "garden", "energy", "heating", "price"]


def house(rng: random.Random) -> tuple[dict[str, str], float]:
    """A house in the words of the file, and its price."""
    district, energy = rng.choice(list(DISTRICTS)), rng.choice(list(ENERGY))
    area, built, garden = rng.lognormvariate(4.75, 0.3), rng.randint(1900, 2023), rng.random() < 0.6
    sold = date(2021, 1, 1) + timedelta(days=rng.randrange(4 * 365))
    age = 1.0 - 0.0035 * min(70, sold.year - built) + (0.12 if built < 1920 else 0.0)
    per_metre = DISTRICTS[district] * ENERGY[energy] * age * (area / 115) ** -0.15
    price = (per_metre * area + 25_000 * garden) * math.exp(0.04 * (sold.year - 2021) + rng.gauss(0.0, 0.08))
    words = {
        "sold": f"{sold:%d.%m.%Y}",
        "district": district,
        "area": f"{area:.1f} m²".replace(".", ","),
        "rooms": str(max(1, round(area / 28 + rng.gauss(0.0, 0.7)))),
        "built": str(built),
        "garden": "yes" if garden else "no",
        "energy": energy if rng.random() < 0.9 else "n/a",
        "heating": rng.choice(["gas", "oil", "heat pump", ""]),
    }
    return words, price


def euros(price: float) -> str:
    """1.250.000 €: a point between thousands, to the nearest thousand."""
    return f"{round(price, -3):,.0f} €".replace(",", ".")


def files() -> dict[str, str]:
    """The texts of both files, by name."""
    rng = random.Random(7)
    sold = [";".join(HEADER)]
    for number in range(1, 241):
        words, price = house(rng)
        sold.append(";".join([str(number), *(words[name] for name in HEADER[1:-1]), euros(price)]))
    offered = [";".join(["offer", *HEADER[1:-1], "asked"])]
    for number in range(1, 13):
        words, price = house(rng)
        words["sold"] = "15.01.2025"
        asked = euros(price * math.exp(rng.gauss(0.0, 0.12)))
        offered.append(";".join([f"offer {number}", *(words[name] for name in HEADER[1:-1]), asked]))
    return {"houses.csv": "\n".join(sold) + "\n", "new-houses.csv": "\n".join(offered) + "\n"}


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text, encoding="utf-8-sig")
