"""Ships a compiled Keras model from a script to the workers of a job: classes by value, layers by their structure.

``pickling`` turns objects into bytes and back, ``shipped`` is what the model file of such a job gives to the worker.
May import ``elasticdl.shared``, Keras and TensorFlow. Must not import the worker: scripts use it, too.
"""
