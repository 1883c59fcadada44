"""Loads the shipped master and a real nats-server with clients that speak the protocol; see ``__main__``."""
