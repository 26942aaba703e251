"""Four made-up hospitals, each with a CSV of its own: numbers, categories, missing values, unequal diagnoses."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITALS = {"berlin": 300, "oslo": 240, "porto": 200, "turin": 160}
DIAGNOSES = np.array(["asthma", "flu", "healthy"])


def patients(count: int, draws: np.random.Generator, place: int) -> pd.DataFrame:
    """Patients of one hospital: it sees mostly one kind, and older people than the next."""
    mix = np.full(3, 0.15)
    mix[place % 3] = 0.7
    kind = draws.choice(3, count, p=mix)
    table = pd.DataFrame(
        {
            "age": draws.normal(40 + 8 * place, 15, count).clip(1, 99).round(),
            "temperature": (36.8 + 1.6 * (kind == 1) + draws.normal(0, 0.5, count)).round(1),
            "wheezing": np.where(draws.random(count) < np.array([0.85, 0.25, 0.05])[kind], "yes", "no"),
            "smoker": draws.choice(["never", "former", "current"], count),
            "peak_flow": (520 - 170 * (kind == 0) - 25 * place + draws.normal(0, 60, count)).round(),
            "diagnosis": DIAGNOSES[kind],
        }
    )
    for column in ("temperature", "smoker", "peak_flow"):
        table.loc[draws.random(count) < 0.08, column] = None
    return table


def main(folder: Path) -> None:
    """Write silos/NAME.csv for each hospital, and patients.csv: people to be diagnosed, with what they had."""
    draws = np.random.default_rng(0)
    (folder / "silos").mkdir(parents=True, exist_ok=True)
    for place, (name, count) in enumerate(HOSPITALS.items()):
        patients(count, draws, place).to_csv(folder / "silos" / f"{name}.csv", index=False)
    everywhere = [patients(60, draws, place) for place in range(len(HOSPITALS))]
    pd.concat(everywhere).to_csv(folder / "patients.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
