"""A cluster whose nodes are only objects: etcd, API server, scheduler, and kwok, which plays the kubelets.

It holds thousands of pods, and devices that this machine does not have. Pods run no code: tests speak for them.
"""
