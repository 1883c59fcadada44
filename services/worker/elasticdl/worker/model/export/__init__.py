"""Export of the trained model as ``saved_model`` and ``model.keras``."""
