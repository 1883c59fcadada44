"""The Keras callbacks of the model file: which ones a job accepts, and how their hooks run between two epochs."""
