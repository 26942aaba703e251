"""What a fit works with: the federation, the network they agreed on, the test data and the journal."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from fedtct.agreement import Agreement, agree, misfit
from fedtct.answers import check_classes, warn_of_idle_outputs
from fedtct.data.samples import as_samples, from_dataset
from fedtct.errors import FedtctError, listing
from fedtct.federation import Federation, LocalFederation, Replies
from fedtct.history import Journal, Record
from fedtct.models import Model, Network, NetworkSpec, build_own, find_head, head_size, other_heads
from fedtct.models.network import check_layout
from fedtct.models.pretrained import StateDict, read_state_dict, stem_of
from fedtct.models.trial import network_for_examples, try_model, try_tokens
from fedtct.remarks import joined_warnings
from fedtct.silo import Silo
from fedtct.tasks import Classification
from fedtct.training import LocalPlan

Labelled = Dataset[Any] | tuple[Any, Any]
Test = Labelled | Callable[[Any], Labelled]  # or a function that makes it from the InputSpec that silos agreed on
Silos = Sequence[Silo | Labelled] | Federation


class TestData(NamedTuple):
    """Test data on the server; never used for a choice."""

    x: Tensor
    y: Tensor


@dataclass
class Session:
    """One fit from beginning to end."""

    federation: Federation
    spec: NetworkSpec
    network: Network  # the server's copy
    journal: Journal
    test: TestData | None
    agreed: Agreement
    private: bool = False  # with differential privacy: silos rate no models

    @classmethod
    def open(
        cls,
        silos: Silos,
        model: Model | None,
        *,
        test: Test | None = None,
        journal: Journal | None = None,
        head: str | None = None,
        init_weights: str | Path | None = None,
        num_classes: int | None = None,
        seed: int = 0,
        pooled: bool = False,
        private: bool = False,
    ) -> "Session":
        """Ask the silos what they hold, check that it fits together and agree on the network.

        If they are ``private``, they tell only how many samples they have, of which shape and kind.
        """
        if torch.is_inference_mode_enabled():
            raise FedtctError("training is not possible within torch.inference_mode: call fit outside of it")
        if model is None:
            raise FedtctError("no model was given: the first argument must be its name or an nn.Module")
        state = read_state_dict(init_weights) if init_weights is not None else None
        federation = silos if isinstance(silos, Federation) else LocalFederation(silos)
        guessed = num_classes is None and isinstance(model, nn.Module)
        if isinstance(model, nn.Module):
            num_classes = _outputs(model, head, num_classes)
        if pooled:
            federation = _pooled(federation, num_classes)
        journal = journal or Journal()
        told = _describe(federation, num_classes, private)
        agreed = _agree(federation, journal, told, num_classes, private)
        spec = _network_spec(model, agreed, num_classes, state, head, seed)
        network = _build(spec, state, federation)
        _keep(journal, agreed, network)
        if state is not None:  # the file may have brought other buffers than the model's constructor drew
            spec = replace(spec, fixed=network.fixed())
        with joined_warnings(federation.names()):
            federation.use(spec)
        if agreed.inputs.dtype != torch.int64:  # only silos know which tokens there are: they try the model themselves
            try_model(network, agreed.outputs, agreed.inputs.examples(2))
        if guessed:
            warn_of_idle_outputs(agreed.outputs, told.messages)
        tested_on = test_data(test, spec, network)
        return cls(federation, spec, network, journal, tested_on, agreed, private)

    def need_holdout(self, purpose: str) -> None:
        """Refuse a choice that is made on held-out samples if some silo holds none out."""
        if not self.agreed.everybody_holds_out:
            raise FedtctError(f"{purpose} needs held-out samples, but {_none_held_out(self.agreed)}")


def test_data(test: Test | None, spec: NetworkSpec, network: Network) -> TestData | None:
    """The test data as the network takes it; refused if it does not look like the silos'."""
    whose = "the test data"
    if test is None:
        return None
    if callable(test) and not isinstance(test, Dataset):
        test = test(spec.inputs)
    if isinstance(test, Dataset):
        test = from_dataset(test, whose, spec.task.read_as)
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise FedtctError(f"test must be a pair (x, y) or a torch Dataset, not {type(test).__name__}")
    x, y = spec.encode(*as_samples(*test, whose, spec.task.read_as), whose)
    if x.dtype == torch.int64:
        try_tokens(spec, network, x, whose)
    return TestData(x.to(network.device), y.to(network.device))


def _pooled(federation: Federation, num_classes: int | None) -> LocalFederation:
    """All silos' data as one silo. It is checked first that they fit together: afterwards nobody knows who differs."""
    if not isinstance(federation, LocalFederation):
        raise FedtctError("Centralized needs all data in one process: give it silos, not a federation")
    agree(federation.ask("describe", {}).messages, num_classes, names=federation.names())
    return federation.pooled()


def _outputs(model: nn.Module, head: str | None, num_classes: int | None) -> int:
    """How many outputs a module has; refused if another number of classes was asked for."""
    outputs = head_size(model, head)
    if num_classes not in (None, outputs):
        name = find_head(model, head)
        raise FedtctError(
            f"num_classes is {num_classes}, but the model's head '{name}' has {outputs} outputs{other_heads(model)}"
        )
    return outputs


def _describe(federation: Federation, num_classes: int | None, private: bool) -> Replies:
    if private and num_classes is None:
        raise FedtctError("with differential privacy silos do not tell their labels: give num_classes")
    with joined_warnings(federation.names()):
        return federation.ask("describe", {"private": True} if private else {})


def _none_held_out(agreed: Agreement) -> str:
    """Who holds nothing out, and which share would do: the usual tenth of very few samples is rounded to none."""
    silos = {name: samples for name, samples in agreed.silos.items() if not agreed.held[name]}
    who = listing(f"{name} (of {samples})" for name, samples in silos.items())
    several = [samples for samples in silos.values() if samples > 1]
    advice = []
    if several:
        share = max(0.1, math.ceil(100 / min(several)) / 100)  # one sample of the fewest, at least
        advice.append(f"give every silo holdout={share:g}, for example")
    if len(several) < len(silos):
        advice.append("leave out those with a single sample")
    return f"some silos hold out none of their samples: {who}. {', and '.join(advice).capitalize()}"


def _agree(
    federation: Federation, journal: Journal, told: Replies, num_classes: int | None, private: bool
) -> Agreement:
    """What silos agree on; a run that goes on keeps what it began with, even if a silo is missing or changed by now."""
    before = journal.agreement()
    if before is None:
        names = told.cost.silos or ["Centralized"]  # pooled data belongs to no silo
        return agree(told.messages, num_classes, private, names=names)
    agreed = _kept_agreement(before, num_classes)
    _leave_out_misfits(federation, agreed, told)
    federation.expect(agreed.silos)
    return agreed


def _kept_agreement(record: Record, num_classes: int | None) -> Agreement:
    """What was agreed on when the run began; refused if another number of classes is asked for now."""
    try:
        agreed = Agreement.from_record(record)
    except (KeyError, TypeError, AttributeError) as error:
        reason = "the run was started with another version of fedtct: start a new one"
        raise FedtctError(reason, error) from error
    numbered = isinstance(agreed.task, Classification) and not agreed.task.names
    if numbered and num_classes not in (None, agreed.outputs):
        raise FedtctError(f"the run was started with {agreed.outputs} classes, not {num_classes}: start a new one")
    return agreed


def _leave_out_misfits(federation: Federation, agreed: Agreement, told: Replies) -> None:
    """Leave out silos whose data no longer fits what the run began with; warn of others whose data has changed."""
    silos = dict(zip(told.cost.silos, told.messages, strict=False))
    found = {name: misfit(silo, agreed.inputs, agreed.task, agreed.outputs) for name, silo in silos.items()}
    if reasons := {name: reason for name, reason in found.items() if reason}:
        federation.leave_out(reasons)
    for name, silo in silos.items():
        if name not in reasons and (before := agreed.silos.get(name, silo["n"])) != silo["n"]:
            warnings.warn(
                f"{name} now trains on {silo['n']} samples, not on {before} as when the run began: it continues with "
                "different data",
                stacklevel=2,
            )


def _network_spec(
    model: Model, agreed: Agreement, num_classes: int | None, state: StateDict | None, head: str | None, seed: int
) -> NetworkSpec:
    """The network that fits what silos agreed on; a function of the user's makes its own for that."""
    if not isinstance(model, nn.Module):  # a head that does not fit is refused with its name, when it is built
        check_classes(num_classes, agreed.task, agreed.outputs)
    if not isinstance(model, str | nn.Module):
        model = build_own(model, agreed.inputs.shape, agreed.outputs, seed)
    stem = stem_of(state) if state else "small"
    return NetworkSpec(model, agreed.inputs, agreed.outputs, head, stem, agreed.task, seed)


def _build(spec: NetworkSpec, state: StateDict | None, federation: Federation) -> Network:
    """The server's copy of the network, with the weights that training starts from."""
    device, precision = torch.device("cpu"), None
    if isinstance(federation, LocalFederation):
        device, precision = federation.device, federation.precision
    network = spec.build(device, state=state, precision=precision, channels_last=True)
    if not bool(network.parameters.isfinite().all()):
        raise FedtctError("the initial weights hold NaN or infinite values: fix the model, or the file in init_weights")
    return network


def _keep(journal: Journal, agreed: Agreement, network: Network) -> None:
    """Record what a new run begins with; a run that goes on must have the network that it began with."""
    if (before := journal.agreement()) is None:
        journal.keep_agreement(agreed.record() | {"layout": network.layout()})
    else:
        check_layout(before.get("layout", []), network.layout())


@torch.no_grad()
def check_batches(session: Session, plan: LocalPlan) -> None:
    """Refuse silos that would train on a single sample at a time, if the model's BatchNorm cannot."""
    alone = [name for name, samples in session.agreed.silos.items() if min(samples, plan.batch_size) == 1]
    network = network_for_examples(session.spec, session.network) if alone else None
    if network is None:
        return
    try:
        with network.tried_in_training(plan.trainable):
            network(session.spec.inputs.examples())
    except ValueError as error:
        larger = "use a larger batch_size, " if session.agreed.silos[alone[0]] > 1 else ""
        raise FedtctError(
            f"{alone[0]} would train on a single sample at a time, which the model cannot do ({error}): {larger}leave "
            "that silo out, or use a model with GroupNorm"
        ) from error
