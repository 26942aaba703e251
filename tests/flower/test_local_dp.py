"""Differential privacy of stage 1 by Flower's own mod: the same bits as without Flower, wherever training began."""

import numpy as np
import pytest
import torch
from flwr.app import Message as FlowerMessage
from flwr.supercore.task_identity import TaskIdentity

from fedtct.deploy.local_dp import with_flowers_noise
from fedtct.federation.flower.wire import pack
from fedtct.models import Weights
from fedtct.privacy import noisy_update

KEY = b"key"


@pytest.mark.parametrize("began", [0.0, 0.3, 1e8])
@pytest.mark.parametrize("size", [0.0, 1e-3, 8.0, 1e5, float("nan")], ids=["none", "short", "long", "far", "diverged"])
def test_flowers_noise_is_that_of_a_simulation(began, size):
    draws = torch.Generator().manual_seed(0)
    start = Weights(torch.full((200,), began), torch.full((7,), -began))
    local = Weights(*(at + size * torch.randn(at.shape, generator=draws) for at in start))
    numpys = np.random.normal
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    question = FlowerMessage(pack(start._asdict(), {}), 1, "train")
    over_flower = with_flowers_noise(question, None, start, local, 2.0, 0.5, KEY)
    assert all(map(torch.equal, over_flower, noisy_update(start, local, 2.0, 0.5, KEY)))
    assert np.random.normal is numpys
