"""What every service speaks: words, plan, ledger, events, wire, bus and storage.

May import the standard library, protobuf, structlog, numpy (``data``, ``wire``) and one client library per adapter.
Must not import any service, TensorFlow or Keras.
"""
