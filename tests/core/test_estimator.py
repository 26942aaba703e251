"""scikit-learn's own checks, and what is ours: silos by a fit parameter, pipelines, pickles."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from fedtct import (
    TCT,
    Classifier,
    FedAvg,
    FederatedTangentClassifier,
    FederatedTangentRegressor,
    FedtctError,
    Ridge,
    Silo,
)
from fedtct.data.tables import from_matrix
from fedtct.estimator import EXPECTED_FAILURES
from fedtct.tangent import TangentFeatures

QUICK = {"rounds": 2, "local_epochs": 2, "d": 64, "n_silos": 2}
ESTIMATORS = [FederatedTangentClassifier(**QUICK), FederatedTangentRegressor(**QUICK)]
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda e: EXPECTED_FAILURES[type(e).__name__])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_it_is_tct_on_silos():
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    stage1 = FedAvg(rounds=2, local_epochs=2, seed=seed)
    silos = [Silo(from_matrix(X[k == Y]), Y[k == Y]) for k in range(3)]
    expected = TCT("mlp", stage1, TangentFeatures(seed=seed), Ridge(d=64)).fit(silos).model
    found = FederatedTangentClassifier(**QUICK, random_state=3).fit(X, NAMES, silos=NAMES)
    assert found.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert (found.predict(X) == found.classes_[expected.predict(X)]).all()
    assert found.predict_proba(X) == pytest.approx(expected.predict_proba(X).numpy(), abs=1e-6)
    assert found.score(X, NAMES) > 0.9


def test_a_pipeline_equals_its_steps_and_passes_silos_on():
    model, owner = FederatedTangentClassifier(**QUICK), np.arange(len(Y)) % 3
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(MinMaxScaler(), clone(model).set_fit_request(silos=True)).fit(X, Y, silos=owner)
    scaled = MinMaxScaler().fit_transform(X)
    alone = clone(model).fit(scaled, Y, silos=owner)
    assert (pipeline.predict_proba(X) == alone.predict_proba(scaled)).all()
    assert len(alone.history_[0].silo_accuracies) == 3


def test_pickles_and_searches_predict_the_same():
    model = FederatedTangentClassifier(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), **QUICK, holdout=0.2)
    model.fit(X, NAMES)
    copy = pickle.loads(pickle.dumps(model))
    assert model.model_.calibrated
    assert (copy.predict_proba(X) == model.predict_proba(X)).all()
    for other in ("linear", nn.Linear(4, 3)):  # is for the next fit
        copy = pickle.loads(pickle.dumps(model.set_params(model=other)))
        assert (copy.predict_proba(X) == model.predict_proba(X)).all()
        assert str(copy.get_params()["model"]) == str(other)
    named = FederatedTangentClassifier("linear", **QUICK).fit(X, Y)
    copy = pickle.loads(pickle.dumps(named.set_params(model=nn.Linear(4, 3))))
    assert (copy.predict_proba(X) == named.predict_proba(X)).all()
    search = GridSearchCV(FederatedTangentClassifier(**QUICK), {"d": [8, 64]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.6


@pytest.mark.parametrize("convert", [str, int, bool, float])
def test_its_model_goes_elsewhere_with_names_of_columns_and_classes(convert, tmp_path):
    table, y = load_iris(as_frame=True).data, np.array([convert(label) for label in Y])
    model = FederatedTangentClassifier(**QUICK).fit(table, y)
    model.model_.export(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    backwards = table[table.columns[::-1]]
    assert loaded.classes.astype(y.dtype).tolist() == model.classes_.tolist()
    assert (loaded.predict(backwards).astype(y.dtype) == model.predict(table)).all()
    assert loaded.score(backwards, y.astype(int) if convert is float else y) == model.score(table, y)


def test_numbers_with_gaps():
    x, y = load_diabetes(return_X_y=True)
    x[::9, 2] = np.nan
    model = FederatedTangentRegressor(**QUICK, random_state=1).fit(x, y, silos=(x[:, 0] > 0))
    assert model.score(x, y) > 0.4
    assert len(model.history_[0].silo_r2s) == 2


def test_what_is_refused():
    for options, fit, message in [
        ({}, {"silos": [1, 2]}, "inconsistent numbers of samples"),
        ({"split": "by-hand"}, {}, "unknown split"),
        ({"model": "vgg"}, {}, "unknown model 'vgg'"),
        ({"rounds": -1}, {}, "rounds must not be negative"),
        ({"model": nn.Linear(4, 5)}, {}, "num_classes is 3, but the model's head '' has 5 outputs"),
    ]:
        with pytest.raises(ValueError, match=message):
            FederatedTangentClassifier(**QUICK | options).fit(X, Y, **fit)
    for split in ("classes:1", "classes:2"):
        with pytest.raises(FedtctError, match=f"'{split}' needs classes, but the target holds numbers"):
            FederatedTangentRegressor(**QUICK, split=split).fit(X, X[:, 0])
    with pytest.raises(FedtctError, match="one class"):
        FederatedTangentClassifier().fit(X, 0 * Y)


def test_whose_a_sample_is_must_be_said_of_each():
    model = FederatedTangentClassifier(**QUICK)
    for owner in (np.where(Y == 1, np.nan, Y), np.where(Y == 1, None, "a")):
        with pytest.raises(FedtctError, match="silos has missing values"):
            model.fit(X, Y, silos=owner)
    with pytest.raises(ValueError, match="1d array"):
        model.fit(X, Y, silos=np.c_[Y, Y])
    mixed = np.where(Y == 1, np.array("a", object), 7)
    assert model.fit(X, Y, silos=mixed).history_[1].silos == ("7", "a")
