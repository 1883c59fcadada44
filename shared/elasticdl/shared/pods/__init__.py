"""Pods of a job on any platform: the port ``Pods``, why pods end, and the shell that runs the master's commands.

The launcher uses it for processes on one machine; a master can use it for pods of a cluster. May import
``elasticdl.shared`` and the standard library. Must not know any platform, and must not decide which pods there are.
"""
