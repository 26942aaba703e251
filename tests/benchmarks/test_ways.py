"""Every way of doing the work that benchmarks time does it: none has fallen behind what it measures."""

import pytest

from benchmarks import ours, plain

SIZES = {"silos": 2, "samples": 6, "p": 50}


@pytest.mark.parametrize(
    ("way", "arguments"),
    [
        (plain.stage1, {"model": "mlp", "samples": 70}),
        (ours.stage1, {"model": "mlp", "samples": 70, "precision": "fp32"}),
        (plain.training_pass, {"model": "mlp", "samples": 70}),
        (plain.features, {"model": "simple-cnn", "samples": 2, "p": 50}),
        (ours.features, {"model": "simple-cnn", "samples": 2, "p": 50}),
        (ours.prediction, {"model": "simple-cnn", "samples": 2, "p": 50}),
        (plain.stage2, {"samples": 6, "p": 50, "steps": 3}),
        (ours.stage2, SIZES | {"rounds": 2, "steps": 3}),
        (ours.ready, SIZES | {"many_steps": True}),
        (ours.ready, SIZES | {"many_steps": False}),
        (ours.grid, SIZES | {"rounds": 2, "cells": 3}),
    ],
    ids=lambda value: f"{value.__module__}.{value.__name__}" if callable(value) else "",
)
def test_a_way_does_its_work(way, arguments):
    work = way(**arguments)
    assert work() == work() > 0
