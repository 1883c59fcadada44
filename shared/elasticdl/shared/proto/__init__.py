"""The wire schemas (package ``elasticdl.v1``) and the code that protoc makes from them; nobody edits ``*_pb2``."""
