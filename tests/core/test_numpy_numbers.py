"""Numbers of numpy's are numbers: a model is the same, to its last byte, whoever's numbers its settings are."""

import numpy as np
import pytest
from core_helpers import skewed_data

from fedtct import (
    TCT,
    FedAdam,
    FedAvg,
    FedDyn,
    FederatedTangentClassifier,
    FedProx,
    GradientDescent,
    Ridge,
    ScaffoldRegression,
    Silo,
    TangentFeatures,
    partition,
)
from fedtct.runs.config import RunConfig

X, Y = skewed_data((40,))[0]
AS_NUMPY = {int: np.int64, float: np.float32, bool: np.bool_}
FLOAT = 0.125  # float32 has it exactly


def same(number):
    return number


def numpys(number):
    return AS_NUMPY[type(number)](number)


def stage1(of, kind=FedAvg, **more):
    counts = {"rounds": of(2), "local_epochs": of(1), "batch_size": of(8), "num_classes": of(3), "seed": of(2)}
    counts |= {"evaluate_every": of(1), "patience": of(2)}
    return kind("mlp", lr=of(FLOAT), weight_decay=of(FLOAT), clip=of(FLOAT), **counts, **more)


def features(of):
    return TangentFeatures(p=of(64), seed=of(1), normalize=of(True))


def steps(of):
    return {"rounds": of(1), "lr": of(2.0**-9), "evaluate_every": of(1), "patience": of(1)}


def private(of):
    noisy = FedAvg(rounds=of(1), num_classes=of(3), clip=of(FLOAT), noise=of(FLOAT))
    return TCT("mlp", noisy, features(of), Ridge(d=of(16), noise=of(FLOAT)))


METHODS = {
    "fedavg": stage1,
    "fedprox": lambda of: stage1(of, FedProx, mu=of(FLOAT)),
    "feddyn": lambda of: stage1(of, FedDyn, alpha=of(FLOAT)),
    "fedadam": lambda of: stage1(of, FedAdam, server_lr=of(FLOAT), beta1=of(0.5), beta2=of(0.5), tau=of(FLOAT)),
    "ridge": lambda of: TCT("mlp", stage1(of), features(of), Ridge(d=of(16), ridge=of(FLOAT))),
    "scaffold": lambda of: TCT("mlp", stage1(of), features(of), ScaffoldRegression(steps=of(5), **steps(of))),
    "gradient descent": lambda of: TCT("mlp", stage1(of), features(of), GradientDescent(**steps(of))),
    "private": private,
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_model_is_the_same_to_its_last_byte(method):
    def saved(of):
        silos = [Silo(X[part], Y[part], holdout=of(0.25)) for part in partition(Y, of(2), seed=of(3))]
        return method(of).fit(silos).model.to_bytes()

    assert saved(numpys) == saved(same)


def test_settings_are_plain_values():
    method = stage1(numpys)
    assert {type(value) for value in vars(method).values()} <= {int, float, str, type(None)}
    assert RunConfig.of(rounds=np.int64(3), stage2="ridge", lr=np.float32(FLOAT), normalize=np.bool_(False)) == (
        RunConfig.of(rounds=3, stage2="ridge", lr=FLOAT, normalize=False)
    )


def test_an_estimator_of_scikit_learn_takes_them():
    def proba(of):
        given = {"n_silos": of(2), "rounds": of(1), "batch_size": of(8), "lr": of(FLOAT), "d": of(16)}
        model = FederatedTangentClassifier(**given, holdout=of(0.25), ridge=of(FLOAT))
        return model.fit(X.numpy(), Y.numpy()).predict_proba(X.numpy())

    assert np.array_equal(proba(numpys), proba(same))
