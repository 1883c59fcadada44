"""The local launcher: runs the processes of one job on this machine.

The master decides which pods there are; a pod supervisor creates and deletes them through ``LocalPods``. The launcher
itself restarts nats-server and the master. No process outlives the launcher: the kernel kills its children when it
dies.

May import ``elasticdl.shared``, ``elasticdl.master`` (to fold the event log), psutil and the standard library. Must not
decide anything about training.
"""
