from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.histories.logs import FOLDER, read_log
from tests.unit.shared_bus.strategies import values

from elasticdl.shared.bus.stored_events import StoredEvent, from_stored, to_stored
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_an_event_is_read_as_it_was_stored(data: st.DataObject) -> None:
    sent = data.draw(values(Envelope).filter(lambda each: bool(each.incarnation)))
    assert from_stored(to_stored(sent)) == sent


def test_an_event_of_an_earlier_version_repeats_its_sender() -> None:
    for record in read_log(FOLDER / "plain.log"):
        sent = record.envelope
        assert from_stored(StoredEvent(sent.name, sent.id, codec.encode_envelope(sent))) == sent
