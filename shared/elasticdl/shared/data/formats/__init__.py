"""The data formats, each with a scanner for the index and a reader for record ranges."""
