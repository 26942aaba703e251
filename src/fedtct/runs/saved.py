"""A saved model: in a run's folder, in a folder of its own, or exported to one file with a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedtct import __version__
from fedtct.classifier import Classifier, read_record
from fedtct.data.sources import Reading, read_inputs, read_samples
from fedtct.data.texts import composed
from fedtct.errors import FedtctError, listing
from fedtct.history import RATED_ON
from fedtct.importing import import_function, is_function_name
from fedtct.runs.caveats import absent, caveats
from fedtct.runs.choose import chosen
from fedtct.runs.common_class import CommonClass
from fedtct.runs.finding_types import SPLIT
from fedtct.runs.folder import CONFIG, MODEL, RunFolder
from fedtct.runs.places import free_file
from fedtct.runs.summary import (
    SILO_SAMPLES,
    SiloRatings,
    Summary,
    final_row,
    in_megabytes,
    kept_round,
    silos_told,
)
from fedtct.tasks import Regression

CARD, TARGET = "model_card", "target"
OTHER_FORMATS = (  # endings that promise another format than ours
    *(".onnx", ".pt", ".pt2", ".pth", ".ckpt", ".bin", ".tflite", ".pb", ".h5", ".keras", ".mlmodel", ".gguf"),
    *(".pkl", ".pickle", ".joblib", ".npz"),
)
CALIBRATION = {
    True: "calibrated on samples that silos held out",
    False: "not calibrated: silos shared nothing about held-out samples",
}


class Saved(NamedTuple):
    """A model; of tables the column that it predicts, its card if it has one, and its run if that is known."""

    model: Classifier
    target: str
    card: str
    run: RunFolder | None

    @classmethod
    def load(cls, path: Path, own: str = "", device: str = "auto") -> Saved:
        """The model at a path; ``own`` names the user's function that makes it, if it is not one of fedtct's."""
        if own and not is_function_name(own):
            raise FedtctError(f"model must be a function of yours, as module:function, not '{own}'")
        build = import_function(own, Path.cwd()) if own else None
        path = chosen(path)
        run = RunFolder.read(path) if (path / CONFIG).is_file() else None
        if run is not None and run.failure:
            raise FedtctError(f"{path} has no model: {run.failure}{run.way_out}")
        if run is not None and not run.finished:
            raise FedtctError(f"{path} has no model yet: resume it with `{run.go_on}`")
        if run is not None and not own and is_function_name(run.config.model):
            apart = run.begun_with.startswith("fedtct deploy")  # where its modules are in a folder of their own
            found = ", and its app folder in PYTHONPATH" if apart else ""
            raise FedtctError(
                f"{path} was made from a model of your own: give it with --model {run.config.model}{found}"
            )
        notes = read_record(path)[1] if path.is_file() else {}
        target = run.config.target if run else notes.get(TARGET, "")
        return cls(Classifier.load(path / MODEL if run else path, build, device), target, notes.get(CARD, ""), run)

    def inputs(self, path: Path) -> Any:
        """Samples to predict from."""
        return read_inputs(path, self.model.spec.inputs.image_size, self._texts)

    def samples(self, path: Path, target: str = "") -> tuple[Any, Any]:
        """Samples with their true answers."""
        task = "regression" if isinstance(self.model.spec.task, Regression) else "classification"
        table = self.model.spec.inputs.table
        only = table.names if table else []
        if (name := composed(target)) in only:
            taught = f" ('{self.target}' in training)" if self.target else ""
            raise FedtctError(f"the model predicts from '{name}': --target must name the column with the truth{taught}")
        how = Reading(target or self.target, task, self.model.spec.inputs.image_size, self._texts)
        return read_samples(path, how, only)

    @property
    def _texts(self) -> list[str]:
        table = self.model.spec.inputs.table
        return table.texts if table else []

    def export(self, file: Path) -> str:
        """Write model and card to one file. Returns the card."""
        card = self.card or write_card(self, file.name)
        self.model.export(free_export(file), **{CARD: card, TARGET: self.target})
        return card


def free_export(file: Path) -> Path:
    """The path of a file to export to; refused if it has the ending of another format, or if something is there."""
    if file.suffix.lower() in OTHER_FORMATS:
        raise FedtctError(
            f"{file} would be no {file.suffix} file: export writes .safetensors. For ONNX and the like give in Python "
            "what model.to_module() returns to torch.onnx.export; TCT's models have none"
        )
    return free_file(file)


def write_card(saved: Saved, name: str) -> str:
    """The model card, in Markdown: what the model takes and gives, how it was trained and how good it is."""
    model, spec = saved.model, saved.model.spec
    lines = ["# Model card", "", f"A {model.kind} model, trained across silos by fedtct {__version__}.", ""]
    lines += [f"- **Network:** {spec.model if isinstance(spec.model, str) else type(spec.model).__name__}"]
    if spec.inputs.table is not None:
        columns = listing((column.name for column in spec.inputs.table.columns), most=None)
        lines += [f"- **Takes:** a table, whose columns the model encodes itself: {columns}"]
    else:
        lines += [f"- **Takes:** samples of shape {spec.inputs.shape}, {str(spec.inputs.dtype).removeprefix('torch.')}"]
    if isinstance(spec.task, Regression):
        lines += [f"- **Gives:** {saved.target or 'a number'}, on average {spec.task.mean:.6g} in training"]
    else:
        lines += [f"- **Classes:** {listing(model.classes.tolist(), most=None)}"]
        lines += [f"- **Probabilities:** {CALIBRATION[model.calibrated]}"]
    if saved.run is not None:
        lines += _training(saved.run)
    own = "" if isinstance(spec.model, str) else ", model=build"
    lines += ["", "```python", "from fedtct import Classifier", ""]
    lines += [f'model = Classifier.load("{name}"{own})', "model.predict(x)", "```", ""]
    return "\n".join(lines)


def _training(run: RunFolder) -> list[str]:
    summary, last = Summary.of(run), final_row(run.history, run.config)
    metric, show = ("R²", "{:.3f}") if summary.regression else ("accuracy", "{:.1%}")
    rated = {name: summary.rating(of) for of, name in RATED_ON.items()}
    where = ", ".join(f"{show.format(value)} on {name} samples" for name, value in rated.items() if value is not None)
    private = summary.epsilon is not None  # what samples say about the model is told of test data alone
    unknown = "not known: private silos rate no models" if private else "not known: nobody rated it"
    where = where or ("none: training diverged" if last.diverged else unknown)
    split = "" if run.config.data else f", split {summary.split}"
    megabytes = in_megabytes(summary.bytes_up + summary.bytes_down)
    lines = [
        f"- **Method:** {summary.method}, {summary.rounds} rounds, {megabytes} MB per silo, seed {summary.seed}",
        f"- **Data:** {summary.dataset}{split}, {silos_told(run)}",
        f"- **{metric.capitalize() if metric == 'accuracy' else metric}:** {where}",
    ]
    errors = {name: summary.rmse(of) for of, name in RATED_ON.items()}
    if known := ", ".join(f"{value:.4g} on {name} samples" for name, value in errors.items() if value is not None):
        lines += [f"- **RMSE:** {known}, in the units of {run.config.target or 'what is learnt'}"]
    if (common := CommonClass.of([run])) and not (private and summary.test_accuracy is None):
        balanced = "not known: no other class was rated" if common.balanced is None else f"{common.balanced:.1%}"
        always = f"always predicting '{common.name}' would give {common.share:.1%}"
        lines += [f"- **Balanced accuracy,** the mean over classes: {balanced}; {always}"]
    if summary.epsilon is not None:
        privacy = f"ε = {summary.epsilon:.3g} at δ = {run.config.delta:g}, of every sample"
        lines += [f"- **Differential privacy:** {privacy}"]
    if kept := kept_round(run.history, run.config):
        lines += [f"- **Note:** {kept}"]
    return lines if last.diverged or private else lines + _silo_table(run, metric, show)


def _silo_table(run: RunFolder, metric: str, show: str) -> list[str]:
    silos, split = SiloRatings.of(run), run.finding(SPLIT) or {}
    if not silos.values:
        return []
    names = [silo["name"] for silo in split.get("silos", [])] or list(final_row(run.history, run.config).rated_by)
    names = names if len(names) == len(silos.values) else [f"silo {k}" for k in range(len(silos.values))]
    told = ["–" if value is None else show.format(value) for value in silos.values]
    lines = ["", f"| silo | {metric} on {SILO_SAMPLES[silos.on]} |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in zip(names, told, strict=True)]
    notes = caveats([run]) if silos.on == "holdout" else [*filter(None, [absent(run)])]
    return lines + [line for note in notes for line in ("", f"Note: {note}.")]
