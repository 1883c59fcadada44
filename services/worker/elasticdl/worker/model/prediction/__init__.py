"""What only prediction jobs need of the model: its outputs, the user's processor, ``tf.train.Example`` records."""
