"""The wire: framed tensors over TCP, straight between processes, never through the broker.

``frames`` is the format and pure; ``connection`` moves frames through a blocking socket; ``server`` and ``client`` are
its two ends; ``messages`` and ``message_codec`` give frames meaning. May import the standard library, protobuf,
structlog and numpy. Must not know what a ps does with a push.
"""
