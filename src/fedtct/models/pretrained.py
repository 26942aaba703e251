"""Starting weights from a file: a state dict as safetensors or as torch.save wrote it."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fedtct.errors import FedtctError

StateDict = dict[str, Tensor]


def read_state_dict(path: str | Path) -> StateDict:
    """The tensors in a file. Only tensors are ever read: no code in the file can run."""
    if not isinstance(path, str | Path):
        raise FedtctError(
            f"init_weights must be the name of a file, not a {type(path).__name__}: save a state dict with torch.save"
        )
    path = Path(path)
    if not path.is_file():
        raise FedtctError(f"init_weights: no such file: {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise FedtctError(f"init_weights: {path} cannot be read as a state dict", error) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise FedtctError(f"init_weights: {path} does not hold a state dict (names to tensors)")
    return state


def write_state_dict(path: str | Path, module: nn.Module) -> None:
    """A module's tensors as a file to start from: copies in the usual order, since safetensors takes no others."""
    state = module.state_dict()
    save_file({name: t.cpu().clone(memory_format=torch.contiguous_format) for name, t in state.items()}, path)


def stem_of(state: StateDict) -> str:
    """Which ResNet stem a state dict was trained with: ImageNet's first convolution is 7×7."""
    first = state.get("conv1.weight")
    return "imagenet" if first is not None and first.shape[-1] == 7 else "small"


def load_state_dict(module: nn.Module, state: StateDict, head: str) -> None:
    """Copy ``state`` into ``module``; a head for other classes keeps the module's own initial weights."""
    own = module.state_dict()
    usable = {
        name: value
        for name, value in state.items()
        if not (name.startswith(f"{head}.") and name in own and own[name].shape != value.shape)
    }
    wrong = [n for n, v in usable.items() if n not in own or own[n].shape != v.shape]
    missing = [n for n in own if n not in usable and not n.startswith(f"{head}.") and own[n].is_floating_point()]
    if wrong or missing:
        names = ", ".join((wrong or missing)[:3])
        what = "do not fit the model" if wrong else "are missing from the file"
        ours = ". If fedtct saved this model, load it and save network.module.state_dict() with torch.save"
        saved = ours if "parameters" in wrong else ""
        raise FedtctError(f"init_weights: {len(wrong or missing)} tensors {what} (first: {names}){saved}")
    module.load_state_dict(usable, strict=False)
