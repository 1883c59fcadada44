"""Makes the shard of a new model from the initial values that the first worker sends."""

from __future__ import annotations

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.warm_start import WarmStart
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.model.partitioning import dense_part
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.wire.messages import Floats, RefusalKind


def new_model(
    signature: ModelSignature, policy: UpdatePolicy, owned: Ranges, dense: Floats, warm: WarmStart | None = None
) -> ModelShard:
    """A shard with one group.

    Args:
        warm: weights of another job to start from instead, as far as they fit.

    Raises:
        ProtocolError: the values do not fit the signature.
        RefusedError: the model can't be trained here.
    """
    part = dense_part(signature.dense, owned)
    if dense.size != part.size:  # Before anything of the size that the signature names is allocated.
        raise ProtocolError(f"{dense.size} initial values for {part.size} dense elements")
    if warm and (problem := warm.problem(signature)):
        raise RefusedError(RefusalKind.USER, f"{problem}. {warm.note(signature)}")
    try:
        shard = ModelShard(signature, policy)
        group = shard.create(owned)
        group.dense.set(warm.dense(signature, part, dense) if warm else dense)
        if warm:
            warm.load_rows(shard)
    except (UserError, NotFiniteError) as error:
        raise RefusedError(RefusalKind.USER, f"the model can't be trained: {error}") from error
    except MemoryError as error:
        message = "the model needs more memory than this ps has: use more ps (--num_ps_pods)"
        raise RefusedError(RefusalKind.USER, message) from error
    shard.install([group])
    return shard
