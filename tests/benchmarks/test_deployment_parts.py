"""What a round over Flower is spent with is read from a silo's log."""

from benchmarks.deployment import PARTS, spent

LOG = """
INFO 2026-11-19 23:59:58,000:      Receiving: query message (ID: a0)
INFO 2026-11-19 23:59:58,100:      Received successfully
INFO 2026-11-19 23:59:59,000:      Sending: query message (ID: b0)
INFO 2026-11-19 23:59:59,100:      Sent successfully
INFO 2026-11-19 23:59:59,250:      Receiving: train message (ID: a1)
INFO 2026-11-19 23:59:59,500:      Start `flwr-clientapp` process
INFO 2026-11-19 23:59:59,750:      Received successfully
fedtct: silo-1 answered 'train' of round 5 in 0.4 s
INFO 2026-11-20 00:00:01,750:      Sending: train message (ID: b1)
INFO 2026-11-20 00:00:01,875:      Sent successfully
INFO 2026-11-20 00:00:02,875:      Receiving: query message (ID: a2)
INFO 2026-11-20 00:00:02,900:      Received successfully
"""


def test_only_training_counts_and_each_part_ends_where_the_next_begins():
    assert list(spent(LOG)) == list(zip(PARTS.values(), (0.5, 2.0, 0.125, 1.0), strict=True))
