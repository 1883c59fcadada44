"""The data formats: CSV, TFRecord and Parquet, each with a scanner for the index and a reader for record ranges."""
