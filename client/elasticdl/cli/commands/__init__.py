"""What the commands of ``elasticdl`` do, once ``main.py`` and ``*_commands.py`` have parsed their options."""
