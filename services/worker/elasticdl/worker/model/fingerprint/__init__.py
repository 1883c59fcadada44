"""A description of everything in a model that the ps does not serve, to be compared between processes.

``values`` describes single values, ``layers``, ``graphs`` and ``captured`` find those of a model, ``fingerprint`` puts
them together. Nothing here changes a model.
"""
