"""fedtct predict, evaluate and export: what to do with a model that a run ended with."""

from pathlib import Path
from typing import Annotated

import typer

from fedtct.cli.options import Json
from fedtct.cli.output import print_all, print_evaluation, print_json
from fedtct.cli.screen import Screen
from fedtct.runs.places import free_file

Model = Annotated[
    Path, typer.Argument(help="the folder of a run, a choice or a model, or an exported file", metavar="MODEL")
]
Input = Annotated[Path, typer.Option("--input", help="samples: .csv, .parquet, .npz or images", metavar="FILE")]
Own = Annotated[str, typer.Option("--model", help="the function that makes your own model", metavar="MODULE:FUNCTION")]
Target = Annotated[
    str, typer.Option(help="tables: the column with the true answers [as in training]", metavar="COLUMN")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda", metavar="NAME")]
KEPT = "_kept"  # after the name of a column that is kept, if predictions have such a one


def predict(
    where: Model,
    file: Input,
    out: Annotated[Path | None, typer.Option(help="the file to write [stdout]", metavar="FILE")] = None,
    keep: Annotated[str, typer.Option(help="tables: columns to copy to the front, such as id", metavar="COLUMNS")] = "",
    own: Own = "",
    device: Device = "auto",
) -> None:
    """Predict labels and probabilities: a CSV row for each sample.

    For images, the row also has the name of the file.

    \b
    fedtct predict runs/a --input patients.csv --out diagnoses.csv --keep id
    """
    with Screen() as screen:
        screen.wait("reading the model")
        path = free_file(out) if out else None
        from fedtct.data.texts import composed
        from fedtct.files import write_text
        from fedtct.runs.predictions import prediction_table, row_names
        from fedtct.runs.saved import CALIBRATION, Saved
        from fedtct.tasks import Regression

        saved = Saved.load(where, own, device)
        screen.wait(f"reading {file}")
        columns = [composed(name) for name in keep.split(",")] if keep else []
        x = saved.inputs(file)
        names = row_names(x, file, columns)
        saved.model.on_batch = screen.count("predicting")
        found = prediction_table(saved.model, x, str(file))
        kept = names.rename(columns=lambda name: f"{name}{KEPT}" if name in found else name)
        text = kept.join(found, how="right").to_csv(index=False)
    if path:
        write_text(path, text)
    else:
        print_all(text)
    if not isinstance(saved.model.spec.task, Regression) and not saved.model.calibrated:
        Screen().say(f"fedtct: probabilities are {CALIBRATION[False]} in training")


def evaluate(
    where: Model,
    file: Input,
    target: Target = "",
    own: Own = "",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare a model's predictions with the true answers.

    \b
    fedtct evaluate runs/a --input patients.csv
    """
    with Screen(quiet=json) as screen:
        screen.wait("reading the model")
        from fedtct.runs.predictions import evaluate as compare
        from fedtct.runs.saved import Saved

        saved = Saved.load(where, own, device)
        screen.wait(f"reading {file}")
        x, y = saved.samples(file, target)
        saved.model.on_batch = screen.count("predicting")
        found = compare(saved.model, x, y, str(file))
    if json:
        classes = {rating.name: rating._asdict() for rating in found.classes}
        print_json({"samples": found.samples, **found.figures, "classes": classes})
    else:
        print_evaluation(found, saved.model)


def export(
    where: Model,
    out: Annotated[Path, typer.Option(help="the file to write", metavar="FILE")] = Path("model.safetensors"),
    own: Own = "",
) -> None:
    """Write a model and its card into one safetensors file.

    \b
    fedtct export runs/a --out diagnosis.safetensors
    """
    with Screen() as screen:
        screen.wait("reading the model")
        from fedtct.runs.saved import Saved, free_export

        free_export(out)  # better an error before anything is read
        saved = Saved.load(where, own, "cpu")
        screen.wait(f"writing {out}")
        card = saved.export(out)
    print(card)
    print(f"{out}: the model and this card")
