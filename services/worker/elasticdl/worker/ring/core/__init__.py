"""The decisions of one member of a ring: ``RingCore.handle(event, now_s)`` returns commands.

====================  =================================================================================================
module                decides
====================  =================================================================================================
``positions.py``      which of several states is the newest, and how each member gets it
``contributions.py``  which batches of a round are offered, by which member, and when the round is complete
``formation.py``      how the members of a new generation get the newest state, and when it opens
``results.py``        which results are kept for members that lack them
``joiners.py``        what a leader gives processes that want to be members
``comparison.py``     whose weights differ from the others'
``generations.py``    who is in a generation
``core.py``           generations, commits, breaks and leaving
====================  =================================================================================================

``events.py`` and ``commands.py`` are its inputs and outputs; ``messages.py`` is what members tell each other.
Gradients, results and states pass through as opaque objects.

May import ``elasticdl.shared`` and ``elasticdl.worker.ring.ports``. Must not import sockets, threads, clocks, logging,
randomness or numpy.
"""

from elasticdl.worker.ring.core.core import Phase, RingCore

__all__ = ["Phase", "RingCore"]
