"""One thread: the tests are small, and several workers share the cores."""

import torch

torch.set_num_threads(1)
