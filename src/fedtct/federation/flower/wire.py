"""The form of messages over Flower: one record of plain values and small arrays, and one of large arrays, if any.

Nothing in them can be executed.
"""

import base64
import json
import zlib
from dataclasses import asdict, dataclass, fields
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_to_proto
from safetensors.torch import load, save
from torch import Tensor

from fedtct.errors import FedtctError
from fedtct.models import NetworkSpec
from fedtct.questions import Message, about

ARRAYS, CONFIG, OWN = "arrays", "config", "fedtct."
SILO, ERROR, UNPREPARED = OWN + "silo", OWN + "error", OWN + "unprepared"
VERSION = OWN + "version"  # fedtct's, in every question and every reply
FORGOT = OWN + "forgot"  # the silo should remember a round and does not: its answer begins from nothing
CHANGED = OWN + "changed"  # the silo's data is not what it was when the run began
OTHER_DATA = (
    "its data has changed since the run began: it may train now on samples that it held out before, which makes its "
    "scores too good"
)
SMALL_BYTES = 2**20  # of an array that travels among plain values: each of Flower's own costs two requests on every way
MOST_BYTES = 2**28  # of a network's buffers that are no weights
IN_FP16 = ("parameters", "w")  # what may travel as float16; scales and statistics would not survive it
OWN_MODEL, FIXED = "own_model", "fixed"  # beside the record of a network: the function that makes it, other buffers
FORGET = "forget"  # the run is over: a silo removes what it kept for it


@dataclass(frozen=True)
class Envelope:
    """What a question carries besides its message: to which silo it goes, and where the run stands.

    - ``run``: the run's name, and ``seat``: the silo's number in it
    - ``position``: the number of the round
    - ``last``: the last round of the silo's own that counted, whose memory it goes on from; negative: from nothing
    - ``recipe`` and ``features``: names of the raw and the normalised features that the question needs
    - ``uncounted``: which earlier answer of the silo did not count, and why: it cannot know otherwise
    """

    question: str
    run: str
    seat: int = 0
    position: int = 0
    last: int = -1
    network: str = ""
    recipe: str = ""
    features: str = ""
    fp16: bool = False
    uncounted: str = ""

    @property
    def asked(self) -> str:
        """The question in words."""
        return f"'{self.question}'" + (f" of round {self.position + 1}" if about(self.question).memory else "")


def pack(message: Message, own: dict[str, Any], fp16: bool = False) -> RecordDict:
    """A message as records of plain values and of arrays; ``own`` is fedtct's own, not the algorithm's."""
    plain = {k: v for k, v in message.items() if not isinstance(v, Tensor)}
    arrays = {k: as_array(v, fp16 and k in IN_FP16) for k, v in message.items() if isinstance(v, Tensor)}
    small = {k: array.data for k, array in arrays.items() if len(array.data) <= SMALL_BYTES}
    large = {k: array for k, array in arrays.items() if k not in small}
    content = RecordDict({CONFIG: ConfigRecord(plain | small | own)})
    if large:
        content[ARRAYS] = ArrayRecord(large)
    return content


def addressed(content: RecordDict, own: dict[str, Any]) -> RecordDict:
    """A copy of a packed message with more of fedtct's own values; it shares the large arrays."""
    plain = ConfigRecord(dict(content.config_records[CONFIG]) | own)
    return RecordDict(dict(content) | {CONFIG: plain})


def fits_fp16(question: str, message: Message) -> bool:
    """Whether a round's weights may travel as float16.

    Not where a round builds on differences to earlier ones: rounding errors would add up there.
    """
    corrects = message.get("correction", "none") != "none" or message.get("exact", False)
    return bool(about(question).memory) and not corrects


def as_array(tensor: Tensor, fp16: bool) -> Array:
    """A tensor's values, in numpy's own format; as float16 if that can hold them all."""
    tensor = tensor.detach().cpu()
    if fp16 and tensor.dtype == torch.float32 and bool((halved := tensor.half()).isfinite().all()):
        return Array(halved.numpy())
    return Array(tensor.numpy())


def unpack(content: RecordDict) -> tuple[Message, dict[str, Any]]:
    """The message in its records, and fedtct's own values."""
    config = content.config_records[CONFIG]
    own = {k: v for k, v in config.items() if k.startswith(OWN)}
    message: Message = {k: v for k, v in config.items() if k not in own}
    arrays = {k: v for k, v in message.items() if isinstance(v, bytes)}
    if ARRAYS in content:
        arrays |= {k: array.data for k, array in content.array_records[ARRAYS].items()}
    return message | {k: _tensor(data) for k, data in arrays.items()}, own


def _tensor(data: bytes) -> Tensor:
    tensor = torch.from_numpy(np.load(BytesIO(data), allow_pickle=False))
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def sent_bytes(content: RecordDict) -> int:
    """Bytes of a message as Flower serialises it, to within a dozen an array; TLS and the transport add a little.

    Serialising large arrays takes time, so their bytes are counted, and the rest is serialised.
    """
    arrays = [array for record in content.array_records.values() for array in record.values()]
    rest = {key: _emptied(record) if isinstance(record, ArrayRecord) else record for key, record in content.items()}
    return sum(len(array.data) for array in arrays) + int(recorddict_to_proto(RecordDict(rest)).ByteSize())


def _emptied(record: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({name: Array(a.dtype, a.shape, a.stype, b"") for name, a in record.items()})


def seal(envelope: Envelope) -> dict[str, Any]:
    """An envelope as plain values."""
    return {OWN + name: value for name, value in asdict(envelope).items()}


def unseal(own: dict[str, Any]) -> Envelope:
    """The envelope of a question."""
    return Envelope(**{spec.name: own[OWN + spec.name] for spec in fields(Envelope)})


def network_text(spec: NetworkSpec, own_model: str = "") -> str:
    """Everything but the weights, from which silos build the network; ``own_model`` is the function that makes it.

    Other buffers go along if the server has them from a file, which silos do not have.
    """
    fixed = save({name: buffer.cpu().contiguous() for name, buffer in spec.fixed.items()})
    return json.dumps(spec.record() | {OWN_MODEL: own_model, FIXED: base64.b64encode(zlib.compress(fixed)).decode()})


def fixed_buffers(record: dict[str, Any]) -> dict[str, Tensor]:
    """The buffers in what ``network_text`` gave; refused if a few bytes would become very many."""
    unpacked = zlib.decompressobj()
    content = unpacked.decompress(base64.b64decode(record[FIXED]), MOST_BYTES)
    if unpacked.unconsumed_tail:
        raise FedtctError(f"the network's buffers take more than {MOST_BYTES / 2**20:.0f} MiB")
    return load(content)
