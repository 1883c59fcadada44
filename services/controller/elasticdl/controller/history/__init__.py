"""The log of a fleet: what a controller has seen, and what it has decided, so that both can be read and repeated.

``values`` turns the core's values into JSON and back, ``records`` are the lines of a log, ``log_file`` writes and reads
them, ``recording`` is a planner that writes what it decides, and ``replay`` folds a log and decides again. Knows the
core, and no service, simulator or command line.
"""
