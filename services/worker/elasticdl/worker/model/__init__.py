"""The user's model: loaded, fed, compiled into one step, measured and exported.

The only package of the worker that imports TensorFlow and Keras. It may import ``elasticdl.shared`` and
``elasticdl.layers``; it must not import nats, sockets, asyncio or ``elasticdl.shared.wire``, and starts no threads.
"""
