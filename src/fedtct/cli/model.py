"""fedtct predict, evaluate and export: what to do with a model that a run ended with."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedtct.cli.output import print_evaluation, print_json
from fedtct.cli.screen import Screen

Model = Annotated[Path, typer.Argument(help="a run's folder, a model's, or an exported file", metavar="MODEL")]
Input = Annotated[Path, typer.Option("--input", help="samples: .csv, .parquet, .npz or images", metavar="FILE")]
Own = Annotated[str, typer.Option("--model", help="what makes a model of your own", metavar="MODULE:FUNCTION")]
Target = Annotated[str, typer.Option(help="of a table: the column with the truth [as in training]", metavar="COLUMN")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda", metavar="NAME")]


def predict(
    where: Model,
    file: Input,
    out: Annotated[Path | None, typer.Option(help="the new file [stdout]", metavar="FILE")] = None,
    own: Own = "",
    device: Device = "auto",
) -> None:
    """Write labels and probabilities as CSV, a row a sample.

    \b
    fedtct predict runs/a --input patients.csv --out diagnoses.csv
    """
    from fedtct.runs.folder import free_file
    from fedtct.runs.predictions import prediction_table
    from fedtct.runs.saved import Saved
    from fedtct.tasks import Regression

    path = free_file(out) if out else None
    saved = Saved.load(where, own, device)
    table = prediction_table(saved.model, saved.inputs(file))
    table.to_csv(path or sys.stdout, index=False)
    if not isinstance(saved.model.spec.task, Regression) and not saved.model.calibrated:
        Screen().say("fedtct: probabilities are not calibrated: no silo held samples out in training")


def evaluate(
    where: Model,
    file: Input,
    target: Target = "",
    own: Own = "",
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Compare a model with the truth, class by class.

    \b
    fedtct evaluate runs/a --input patients.csv
    """
    from fedtct.runs.predictions import evaluate as compare
    from fedtct.runs.saved import Saved

    saved = Saved.load(where, own, device)
    found = compare(saved.model, *saved.samples(file, target))
    if json:
        classes = {rating.name: rating._asdict() for rating in found.classes}
        print_json({"samples": found.samples, **found.figures, "classes": classes})
    else:
        print_evaluation(found, saved.model)


def export(
    where: Model,
    out: Annotated[Path, typer.Option(help="the new file", metavar="FILE")] = Path("model.safetensors"),
    own: Own = "",
) -> None:
    """Put a model into one safetensors file with its card.

    \b
    fedtct export runs/a --out diagnosis.safetensors
    """
    from fedtct.runs.saved import Saved

    card = Saved.load(where, own, "cpu").export(out)
    print(card)
    print(f"{out}: the model and this card")
