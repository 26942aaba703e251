"""TCT as a scikit-learn estimator: cloned, searched and put into pipelines like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pandas import isna
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from fedtct.classifier import Classifier
from fedtct.data import partition
from fedtct.data.tables import from_matrix
from fedtct.errors import FedtctError
from fedtct.models import Model
from fedtct.silo import Silo
from fedtct.split_forms import parse_split
from fedtct.stage1 import FedAvg
from fedtct.stage2 import Ridge
from fedtct.tangent import TangentFeatures
from fedtct.tasks import Classification, finite
from fedtct.tct import TCT

# Checks of scikit-learn that an estimator does not pass, and why.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "FederatedTangentClassifier": {},
    "FederatedTangentRegressor": {
        "check_methods_subset_invariance": "networks compute in float32, and batches of another size round otherwise: "
        "predictions agree to 1e-6, the check asks for 1e-7",
    },
}


class _FederatedTangent(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the classifier and the regressor share: parameters, silos and pickles."""

    def __init__(
        self,
        model: Model = "mlp",
        *,
        n_silos: int = 4,
        split: str = "iid",
        rounds: int = 10,
        local_epochs: int = 5,
        batch_size: int = 64,
        lr: float = 0.1,
        d: int = 1024,
        ridge: float | Literal["gcv", "holdout"] = "gcv",
        holdout: float = 0.0,
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.n_silos = n_silos
        self.split = split
        self.rounds = rounds
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.d = d
        self.ridge = ridge
        self.holdout = holdout
        self.random_state = random_state

    def _fit(self, x: NDArray[Any], y: NDArray[Any], silos: Any, num_classes: int | None = None) -> None:
        """Train across the silos that samples belong to."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = self._deal(y, silos, seed)
        stage1 = FedAvg(
            self.model,
            rounds=self.rounds,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            num_classes=num_classes,
            seed=seed,
        )
        method = TCT(self.model, stage1, TangentFeatures(seed=seed), Ridge(d=self.d, ridge=self.ridge))
        table = self._named(x)
        fit = method.fit([Silo(table.iloc[rows], y[rows], holdout=self.holdout, name=name) for name, rows in parts])
        self.model_, self.history_, self.n_iter_ = fit.model, fit.history, max(1, self.rounds)

    def _deal(self, y: NDArray[Any], silos: Any, seed: int) -> list[tuple[str, NDArray[Any]]]:
        """The rows of each silo, with its name."""
        if silos is not None:
            owners = column_or_1d(silos)
            check_consistent_length(y, owners)
            if isna(owners).any():
                raise FedtctError("silos has missing values: name the silo of each sample")
            owners = owners.astype(str) if owners.dtype == object else owners  # names and numbers may be mixed
            return [(str(name), np.flatnonzero(owners == name)) for name in np.unique(owners)]
        has_classes = y.dtype.kind in "iu"
        if not has_classes and parse_split(self.split)[0] == "classes":
            raise FedtctError(f"split '{self.split}' needs classes, but the target holds numbers: use 'iid'")
        rows = partition(y if has_classes else np.zeros(len(y), np.int64), min(self.n_silos, len(y)), self.split, seed)
        return [(f"silo {index}", part) for index, part in enumerate(rows)]

    def _inputs(self, x: Any) -> Any:
        check_is_fitted(self)
        return self._named(validate_data(self, x, reset=False, ensure_all_finite="allow-nan"))

    def _named(self, x: NDArray[Any]) -> Any:
        return from_matrix(x, getattr(self, "feature_names_in_", None))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "model_" in state:
            fitted = self.model_.spec.model  # what ``model`` is may have been changed since
            state["model_"] = (self.model_.to_bytes(), None if isinstance(fitted, str) else fitted)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = state | {"model_": Classifier.from_bytes(*state["model_"])}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class FederatedTangentClassifier(ClassifierMixin, _FederatedTangent):  # type: ignore[misc]  # as above
    """TCT as a scikit-learn classifier: FedAvg trains a network, ridge regression uses its tangent features.

    ``fit(X, y, silos=...)`` takes the silo of each sample, as a name or number. Without it, samples are dealt to
    ``n_silos`` silos by ``split``. Columns are standardised by statistics that silos share in one round; missing values
    (NaN) are allowed. ``holdout`` is the share that silos keep out of training; with it, probabilities are calibrated.
    """

    def fit(self, X: Any, y: Any, silos: Any = None) -> FederatedTangentClassifier:
        """Learn classes; ``silos`` tells whose each sample is."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise FedtctError(f"all {len(y)} samples are of one class: there is nothing to learn")
        self._fit(x, labels, silos, len(self.classes_))
        classes = self.classes_.astype(int) if self.classes_.dtype.kind == "f" else self.classes_  # 1.0 is class 1
        self.model_.spec = replace(self.model_.spec, task=Classification(tuple(map(str, classes))))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each sample."""
        inputs = self._inputs(X)
        best = finite(self.model_.scores(inputs)).argmax(1).numpy()
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class; calibrated if silos hold samples out (``model_.calibrated`` tells)."""
        inputs = self._inputs(X)
        return np.asarray(self.model_.predict_proba(inputs))


class FederatedTangentRegressor(RegressorMixin, _FederatedTangent):  # type: ignore[misc]  # as above
    """TCT as a scikit-learn regressor, with the parameters of FederatedTangentClassifier.

    ``split`` is "iid", or "dirichlet:ALPHA" for silos of unequal sizes: there are no classes to deal by.
    """

    def fit(self, X: Any, y: Any, silos: Any = None) -> FederatedTangentRegressor:
        """Learn numbers; ``silos`` tells whose each sample is."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite="allow-nan")
        if len(y) < 2:
            raise FedtctError("a regression needs more than one sample")
        self._fit(x, y.astype(np.float64), silos)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The number of each sample."""
        inputs = self._inputs(X)
        return np.asarray(self.model_.predict(inputs))
