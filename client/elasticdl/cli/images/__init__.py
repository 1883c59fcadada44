"""Images of a user's own, for the workers of jobs on Kubernetes: ``elasticdl zoo init``, ``build`` and ``push``.

``folder`` writes what an image is built from. ``tools`` knows docker, podman and buildah and chooses one. ``commands``
runs the chosen one.

May import rich and ``elasticdl.*``. Must not talk to a registry or a Docker daemon itself: the tools have the user's
credentials and settings.
"""
