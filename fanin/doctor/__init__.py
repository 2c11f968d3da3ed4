"""``fanin doctor DIR``: diagnosis of a folder, by its files and by the process that writes it."""
