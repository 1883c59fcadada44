"""The local launcher: keeps the processes of one job on this machine.

The master decides which pods there are; the process adapter in here only obeys. The launcher itself keeps nats-server
and the master alive, and nobody outlives it: children are killed by the kernel when it dies.

May import ``elasticdl.shared``, psutil and the standard library. Must not decide anything about training.
"""
