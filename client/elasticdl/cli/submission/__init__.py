"""From command-line flags to a job specification: everything that can be wrong with a job is found here."""
