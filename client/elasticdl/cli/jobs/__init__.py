"""The jobs on this machine: their folders and their event logs."""
