"""``quintain bench``, which `quintain.cli` finds by the entry point group `quintain.commands`."""
