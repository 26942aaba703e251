"""How fast each part is, beside the straightforward way of doing it and beside what the machine could do."""
