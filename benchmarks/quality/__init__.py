"""Does a job give the model that ``fit`` gives? Twelve models, trained both ways and compared; see ``make quality``."""
