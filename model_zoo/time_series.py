"""How much power is needed in the next hour? Causal convolutions (Bai et al., 2018) over 48 hours.

    elasticdl zoo data time_series demand
    elasticdl train --model_def=time_series.custom_model --training_data=demand/train \
        --validation_data=demand/test --num_epochs=5 --output=output

The file has no feed: the inputs are named like the columns ``past`` (a list of 48 numbers) and ``hour``.
"""

import keras

WINDOW = 48
DAY = 24
label = "demand"


def custom_model(filters=24, dilations=(1, 2, 4, 8), width=4):
    """Causal convolutions, each of which looks further back, and the hour of the value to forecast.

    Args:
        filters: of each convolution.
        dilations: hours between the three inputs of each convolution.
        width: of the embedding of the hour.
    """
    past = keras.Input((WINDOW,), name="past")
    hour = keras.Input((), dtype="int32", name="hour")
    x = keras.layers.Reshape((WINDOW, 1))(past)
    for dilation in dilations:
        y = keras.layers.Conv1D(filters, 3, padding="causal", dilation_rate=dilation, activation="relu")(x)
        x = y if x.shape[-1] != filters else keras.layers.Add()([x, y])
    latest = x[:, -1]
    of_day = keras.layers.Embedding(DAY, width)(hour)
    x = keras.layers.Dense(filters, activation="relu")(keras.layers.Concatenate()([latest, of_day]))
    forecast = keras.layers.Dense(1, name="forecast")(x)
    model = keras.Model({"past": past, "hour": hour}, forecast, name="time_series")
    model.compile(keras.optimizers.Adam(0.003), loss="mse", metrics=["mse", "mae"])
    return model
