"""How large a message is on the wire."""

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.common.serde import recorddict_to_proto


def sent_bytes(content: RecordDict) -> int:
    """Bytes of a message as Flower serialises it, to within a dozen an array; TLS and the transport add a little.

    Serialising large arrays takes time, so their bytes are counted, and the rest is serialised.
    """
    arrays = [array for record in content.array_records.values() for array in record.values()]
    rest = {key: _emptied(record) if isinstance(record, ArrayRecord) else record for key, record in content.items()}
    return sum(len(array.data) for array in arrays) + int(recorddict_to_proto(RecordDict(rest)).ByteSize())


def _emptied(record: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({name: Array(a.dtype, a.shape, a.stype, b"") for name, a in record.items()})
