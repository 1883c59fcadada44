"""Is a review a good one? A small Transformer over words, from JSON lines.

    elasticdl zoo data text_classification reviews
    elasticdl train --model_def=text_classification.custom_model --training_data=reviews/train \
        --validation_data=reviews/test --num_epochs=5 --output=output

The file has no feed: the input is named like the column with the text. The vocabulary is learned from the training data
once per job, and is inside the exported model, which takes texts as they are.
"""

import keras

from elasticdl.layers import adapt

label = "label"


@keras.saving.register_keras_serializable("text_classification")
class WordsAndPlaces(keras.layers.Layer):
    """The vector of each word plus the vector of its place.

    Args:
        words: size of the vocabulary.
        places: length of the longest text.
        width: of the vectors.
    """

    def __init__(self, words, places, width, **kwargs):
        super().__init__(**kwargs)
        self.words, self.places, self.width = words, places, width
        self.word_vectors = keras.layers.Embedding(words, width, mask_zero=True)

    def build(self, shape):
        """Make the variables for word numbers of shape (batch, places)."""
        self.word_vectors.build(shape)
        self.place_vectors = self.add_weight((self.places, self.width), initializer="uniform", name="place_vectors")

    def call(self, numbers):
        """Vectors (batch, places, width)."""
        return self.word_vectors(numbers) + self.place_vectors

    def compute_mask(self, numbers, mask=None):
        """False behind the end of a text."""
        return self.word_vectors.compute_mask(numbers)

    def get_config(self):
        """Arguments of the constructor."""
        return super().get_config() | {"words": self.words, "places": self.places, "width": self.width}


def custom_model(words=5000, places=64, width=32, heads=2, blocks=1, dropout=0.1):
    """Blocks of self-attention and a dense layer, then the mean over the words.

    Args:
        words: most words of the vocabulary; rarer ones count as one unknown word.
        places: longer texts are cut off.
        width: of the vectors.
        heads: of the attention.
        blocks: number of blocks.
        dropout: in each block.
    """
    text = keras.Input((), dtype="string", name="text")
    numbers = adapt(keras.layers.TextVectorization(max_tokens=words, output_sequence_length=places), "text")(text)
    x = WordsAndPlaces(words, places, width)(numbers)
    for _ in range(blocks):
        attended = keras.layers.MultiHeadAttention(heads, width // heads, dropout=dropout)(x, x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
        y = keras.layers.Dense(2 * width, activation="gelu")(x)
        y = keras.layers.Dropout(dropout)(keras.layers.Dense(width)(y))
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, y]))
    x = keras.layers.GlobalAveragePooling1D()(x)
    probability = keras.layers.Dense(1, activation="sigmoid", name="probability")(x)
    model = keras.Model(text, probability, name="text_classification")
    model.compile(
        keras.optimizers.Adam(0.002),
        loss="binary_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(num_thresholds=1000, name="auc")],
    )
    return model
