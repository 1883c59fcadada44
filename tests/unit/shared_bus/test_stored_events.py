from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.shared_bus.strategies import values

from elasticdl.shared.bus.stored_events import DATA_BYTES_MAX, from_stored, to_stored
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import MASTER, Incarnation, PodName, Purpose, Service
from elasticdl.worker.core.core import taken_events
from elasticdl.worker.core.tasks.leased import LeasedTask


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_an_event_is_read_as_it_was_stored(data: st.DataObject) -> None:
    service = data.draw(st.sampled_from(Service))
    name = MASTER if service is Service.MASTER else PodName("worker-0")
    drawn = data.draw(values(Envelope).filter(lambda each: bool(each.incarnation)))
    sent = replace(drawn, service=service, name=name, incarnation=Incarnation("cafe"), number=max(1, drawn.number))
    encoded: list[bytes] = []

    def decode(data: bytes) -> Envelope:
        encoded.append(data)
        return codec.decode_envelope(data)

    assert from_stored(to_stored(sent), decode) == sent
    assert encoded == [codec.encode_envelope(sent)]


def test_tasks_that_were_taken_together_fit_into_events_on_the_log() -> None:
    messages = [
        TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=10**7 + number), dispatch=10**5, term=1)
        for number in range(12)
    ]
    leases = [
        LeasedTask(number=number, message=message, attempt=1, reply=f"train.1.{10**7 + number}.{10**7 + number}")
        for number, message in enumerate(messages)
    ]
    events = list(taken_events(leases))
    assert len(events) == 3
    for event in events:
        envelope = Envelope(
            service=Service.WORKER,
            name=PodName("worker-100"),
            incarnation=Incarnation("0123456789ab"),
            number=10**6,
            time_s=1.7e9,
            event=event,
        )
        assert len(to_stored(envelope).data) <= DATA_BYTES_MAX
