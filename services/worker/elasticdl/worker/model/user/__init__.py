"""The user's model file: loaded, called, and fed with records."""
