"""Preprocessing layers that are adapted to the training data: in one process of a job, for all of them.

``states`` turns what a layer has learned into bytes and back, ``columns`` gives it the data, ``adapter`` decides which
process adapts and which ones take over its result. ``elasticdl.layers.adapt`` is what model files call.
"""
