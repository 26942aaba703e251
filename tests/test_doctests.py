"""The examples in docstrings are true."""

import doctest
import inspect

import pytest

import fedtct


@pytest.mark.parametrize("name", fedtct.__all__)
def test_examples(name):
    value = getattr(fedtct, name)
    module = inspect.getmodule(value)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(value, name, module, globs=vars(module).copy()):
        assert runner.run(test).failed == 0


def test_the_main_names_have_examples():
    for name in ("TCT", "FedAvg", "Silo", "Classifier", "History", "load_dataset", "partition"):
        assert ">>>" in getattr(fedtct, name).__doc__
