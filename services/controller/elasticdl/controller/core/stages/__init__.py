"""What a decision does, step by step: room for others, gangs, ps and their moves, then workers by share.

They change the plan, and nothing else. The same rules as for the core hold for what they import.
"""
