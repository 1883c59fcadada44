"""A seeded permutation of ``range(n)`` that needs no memory.

A Feistel network over the smallest even number of bits that holds ``n``, walked until the value falls below ``n``
(cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). It answers for any
position alone, and is defined by integer arithmetic only, so it is the same on every machine and Python version.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

_MASK64 = (1 << 64) - 1
ROUNDS = 4


def mix64(value: int) -> int:
    """Splitmix64's finaliser: a bijection of 64-bit integers with good avalanche (Steele et al., 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def derive_key(*parts: int) -> int:
    """Fold integers into one 64-bit key; the order of the parts matters."""
    key = 0
    for part in parts:
        # ``mix64(key ^ part)`` in place: each batch has several keys.
        key = ((key ^ (part & _MASK64)) + 0x9E3779B97F4A7C15) & _MASK64
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK64
        key ^= key >> 31
    return key


class Permutation:
    """A bijection of ``range(size)`` given by a 64-bit key.

    ``data/order.py`` computes many positions at once.

    Attributes:
        size: how many positions there are.
        key: as given; that of round ``n`` is ``derive_key(key, n)``.
        half_bits: bits of each half of the Feistel network.
    """

    def __init__(self, size: int, key: int) -> None:
        if size < 0:
            raise ValueError("size must not be negative")
        self.size = size
        self.key = key & _MASK64
        self.half_bits = ((size - 1 if size > 2 else 1).bit_length() + 1) // 2

    @cached_property
    def _round_keys(self) -> tuple[int, ...]:
        return tuple([derive_key(self.key, number) for number in range(ROUNDS)])

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.size:
            raise IndexError(position)
        value, bits, keys = position, self.half_bits, self._round_keys
        mask = (1 << bits) - 1
        while True:
            left, right = value >> bits, value & mask
            for key in keys:
                # ``mix64(right ^ key)`` in place: every process asks for several positions of each task.
                mixed = ((right ^ key) + 0x9E3779B97F4A7C15) & _MASK64
                mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
                mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK64
                left, right = right, left ^ ((mixed ^ (mixed >> 31)) & mask)
            value = (left << bits) | right
            if value < self.size:
                return value

    def __iter__(self) -> Iterator[int]:
        return (self[position] for position in range(self.size))
