"""Elastic AllReduce: workers that hold replicas of the model, and commit each round together.

====================  =================================================================================================
module                contents
====================  =================================================================================================
``core``              all decisions of a member: ``RingCore.handle(event, now_s)`` returns commands; no threads, no I/O
``collective.py``     the sum over a ring; ``streams.py``: how far it is; ``kernels.py``: its compiled loops
``half.py``           sums of 16 bits
``blocks.py``         memory that other members on the same machine can read
``copies.py``         copies of the state for members that join
``gradients.py``      own gradients until their rounds are committed, and their sums
``links.py``          the connections of one generation; ``listener.py`` accepts them
``message_codec.py``  messages between members as frames
``replica_set.py``    the shell: executes commands in threads; what the ps lane of a worker calls
``ports.py``          what the ring needs from the rest of the worker
====================  =================================================================================================

May import ``elasticdl.shared`` and the ports and requests of the worker. Must not know what a state consists of, nor
how the master forms generations.
"""
