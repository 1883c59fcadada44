"""The register of a ps: its address, its valid instance, and the snapshot that a successor restores."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from elasticdl.shared.errors import UnreadableError
from elasticdl.shared.names import Incarnation
from elasticdl.shared.proto import wire_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class PsRegister:
    """The last value under a ps' name. The instance that wrote it owns the name.

    ``older`` has only snapshots that no instance of the ps will delete any more.

    Attributes:
        address: ``host:port`` of its wire server.
        incarnation: the instance that owns the name.
        manifest: URI of the manifest of the last complete snapshot, or empty.
        step: batches absorbed in that snapshot.
        older: URIs of the manifests of the other snapshots that are kept, newest first, for when this one is damaged.
    """

    address: str
    incarnation: Incarnation
    manifest: str = ""
    step: int = 0
    older: tuple[str, ...] = ()


def encode_register(register: PsRegister) -> bytes:
    """The register's bytes."""
    return wire_pb2.Register(
        address=register.address,
        incarnation=register.incarnation,
        manifest=register.manifest,
        step=register.step,
        older=register.older,
    ).SerializeToString()


def decode_register(data: bytes) -> PsRegister:
    """Inverse of ``encode_register``.

    Raises:
        UnreadableError: the bytes are not a register.
    """
    try:
        message = wire_pb2.Register.FromString(data)
    except DecodeError as error:
        raise UnreadableError("the register of a ps", str(error)) from error
    if not message.incarnation and not (message.manifest or message.older):
        raise UnreadableError("the register of a ps", "it names neither an owner nor a snapshot")
    return PsRegister(
        address=message.address,
        incarnation=Incarnation(message.incarnation),
        manifest=message.manifest,
        step=message.step,
        older=tuple(message.older),
    )
