"""Makes the shard of a new model from the initial values that the first worker sends."""

from __future__ import annotations

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.model.partitioning import dense_part
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.wire.messages import Floats, RefusalKind


def new_model(signature: ModelSignature, policy: UpdatePolicy, owned: Ranges, dense: Floats) -> ModelShard:
    """A shard with one group.

    Args:
        signature: the whole model.
        policy: when pushes become updates.
        owned: the partitions of this ps.
        dense: initial values of their dense elements.

    Raises:
        ProtocolError: the values do not fit the signature.
        RefusedError: the model can't be trained here.
    """
    size = dense_part(signature.dense, owned).size
    if dense.size != size:  # Before anything of the size that the signature names is allocated.
        raise ProtocolError(f"{dense.size} initial values for {size} dense elements")
    try:
        shard = ModelShard(signature, policy)
        group = shard.create(owned)
        group.dense.set(dense)
    except (UserError, NotFiniteError) as error:
        raise RefusedError(RefusalKind.USER, f"the model can't be trained: {error}") from error
    except MemoryError as error:
        message = "the model needs more memory than this ps has: use more ps (--num_ps_pods)"
        raise RefusedError(RefusalKind.USER, message) from error
    shard.install([group])
    return shard
