"""Shared by all services: names, plan, ledger, events, wire protocol, bus, data and storage.

May import the standard library, protobuf, numpy (``data``, ``wire``) and one client library per adapter.
Must not import any service, TensorFlow or Keras.
"""
