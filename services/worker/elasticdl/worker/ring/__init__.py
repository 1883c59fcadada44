"""AllReduce: workers that hold replicas of the model and average their gradients in a ring.

``core`` decides and is pure; ``collective`` adds up buffers over sockets; ``replica_set`` runs both for one worker.
What a replica is (weights, optimizer, ledger) is known only through ``ports.ReplicaState``.
"""
