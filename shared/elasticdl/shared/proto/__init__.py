"""The wire schemas (package ``elasticdl.v1``) and the code that protoc makes from them; ``*_pb2`` is never edited."""
