"""Snapshots of a ps: when one is due, how it is written, which ones are kept, and recovery from them."""
