"""The registers: of a ps, its address, valid instance and snapshot; of the ring, its present generation."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.errors import ProtocolError, UnreadableError
from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation
from elasticdl.shared.proto.fields import Uint64
from elasticdl.shared.proto.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PsRegister:
    """The last value under a ps' name. The instance that wrote it owns the name.

    ``older`` has only snapshots that no instance of the ps will delete any more.

    Attributes:
        address: ``host:port`` of its wire server.
        manifest: URI of the manifest of the last complete snapshot, or empty.
        older: URIs of the manifests of the other snapshots that are kept, newest first, for when this one is damaged.
    """

    address: str
    incarnation: Incarnation
    manifest: str = ""
    step: Uint64 = 0
    older: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRegister:
    """The present generation of the ring.

    Attributes:
        run: the run of the job that it belongs to; members of another one have ended.
        number: of the generation.
        members: by seniority; the first one leads.
    """

    run: Incarnation
    number: int
    members: tuple[RingMember, ...]
    reason: str = ""


SCHEMA = Schema("elasticdl/shared/proto/register.proto", "elasticdl.v1.stored", (PsRegister, RingRegister))
_REGISTER = SCHEMA.codec(PsRegister)
encode_register = _REGISTER.encode


def decode_register(data: bytes) -> PsRegister:
    """Inverse of ``encode_register``.

    Raises:
        UnreadableError: the bytes are not a register.
    """
    try:
        register = _REGISTER.decode(data)
    except ProtocolError as error:
        raise UnreadableError("the register of a ps", str(error)) from error
    if not register.incarnation and not (register.manifest or register.older):
        raise UnreadableError("the register of a ps", "it names neither an owner nor a snapshot")
    return register


_RING = SCHEMA.codec(RingRegister)
encode_ring = _RING.encode


def decode_ring(data: bytes) -> RingRegister:
    """Inverse of ``encode_ring``.

    Raises:
        UnreadableError: the bytes are no generation of a ring.
    """
    try:
        ring = _RING.decode(data)
    except ProtocolError as error:
        raise UnreadableError("the register of the ring", str(error)) from error
    if not ring.members:
        raise UnreadableError("the register of the ring", "it names no member")
    return ring
