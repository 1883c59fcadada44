"""Replaces names and paths of an event log, the same one everywhere by the same word, so that it still folds. Pure.

Names of processes, of metrics and of formats stay, and so do all numbers. Text of user code, such as messages of
exceptions, is left out. A field that this module does not know is left out, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import JobId
from elasticdl.shared.words import listed

LEFT_OUT = "left out"
_KEPT = frozenset(
    listed(
        "cause, column_types, continues, csv_delimiter, digest, donor, format, group, groups, guilty, history, "
        "incarnation, instance, log_level, metric, name, pod, process, ps, recipient, run, signature, timer"
    )
)
_TEXTS = frozenset(["abort_reason", "failure", "reason", "reasons", "reply", "subject", "work"])
_PATHS = frozenset(
    listed(
        "adapted, damaged, data_cache_dir, exported, file, instead, manifest, object, origin, output, path, "
        "restored_from, snapshot, source, storage, tensorboard_log_dir, uri"
    )
)
_NAMES = frozenset(
    listed(
        "callbacks, class_names, column_names, file_columns, function, job, keep_columns, processor, "
        "sample_weight, symbol, table"
    )
)
_KEPT_MAPS = frozenset({"audited", "metrics_best", "results", "states"})
"""Maps whose keys are names of metrics, or of processes."""
_TOKEN = re.compile(r"\S*/\S*")
_OWN_PART = re.compile(r"|\w+:|(?:ps|worker)-\d+|snapshots|manifest|indices|\d+")
"""Parts of a path that this program has made, without the random ones."""


class Anonymizer:
    """Replaces names and paths in the envelopes of one log, from its first record on."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self.job = JobId(f"job-{job.rpartition('-')[2]}")
        """The name of the job in the anonymous log; it keeps the random end of its id."""
        self._words: dict[str, str] = {job: self.job}

    def envelope(self, envelope: Envelope) -> Envelope:
        """An envelope with other names and paths."""
        message = codec.ENVELOPE.message.FromString(codec.encode_envelope(envelope))
        self._change(message)
        return codec.decode_envelope(message.SerializeToString())

    def _change(self, message: Message) -> None:
        for field, value in message.ListFields():
            options = field.message_type.GetOptions() if field.message_type is not None else None
            if options is not None and options.map_entry:
                self._change_map(message, field, value)
            elif options is not None:
                for each in [value] if isinstance(value, Message) else value:
                    self._change(each)
            elif field.type == FieldDescriptor.TYPE_BYTES and field.name == "fingerprint":
                message.ClearField(field.name)  # It describes the layers of the model.
            elif field.type == FieldDescriptor.TYPE_STRING:
                way = self._way(message, field.name)
                if isinstance(value, str):
                    setattr(message, field.name, way(value))
                else:
                    value[:] = [way(each) for each in value]

    def _way(self, message: Message, field: str) -> Callable[[str], str]:
        owner = message.DESCRIPTOR.name
        if owner == "EnterState" and field == "message" and not _is_failure(message):
            return self.text
        if field in _KEPT or (owner == "Dispatch" and field == "label"):
            return str
        if field in _TEXTS:
            return self.text
        if field in _PATHS:
            return self.path
        if field in _NAMES or (owner == "ModelSpec" and field == "label"):
            return self.name
        return self._address if field == "address" else lambda text: LEFT_OUT if text else ""

    def _change_map(self, message: Message, field: Any, values: Any) -> None:
        has_names = field.message_type.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING
        if not has_names or field.name in _KEPT_MAPS:
            return
        present: Mapping[str, Any] = dict(values)
        is_text = field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING
        message.ClearField(field.name)
        values = getattr(message, field.name)
        for key, value in present.items():
            if is_text:
                values[self.name(key)] = LEFT_OUT
            else:
                values[self.name(key)] = value

    def name(self, text: str) -> str:
        """The word for a name; the file type stays."""
        if not text:
            return ""
        if text not in self._words:
            _, dot, suffix = text.rpartition(".")
            kept = f".{suffix}" if dot and suffix.isalnum() and 0 < len(suffix) <= 8 else ""
            self._words[text] = f"name{len(self._words)}{kept}"
        return self._words[text]

    def path(self, text: str) -> str:
        """A path or an address, part by part. The parts that this program has named stay."""
        return "/".join(part if _OWN_PART.fullmatch(part) else self.name(part) for part in text.split("/"))

    def text(self, text: str) -> str:
        """A sentence of this program, whose paths are replaced, and the name of the job."""
        return _TOKEN.sub(lambda found: self.path(found[0]), text).replace(self._job, self.job)

    def _address(self, text: str) -> str:
        host, _, port = text.rpartition(":")
        return f"{self.name(host)}:{port}" if host else self.name(text)


def _is_failure(message: Any) -> bool:
    states = message.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number
    return "FAILED" in states[message.state].name
