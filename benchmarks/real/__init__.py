"""Real tables: which were chosen, how they are read and cleaned, what they are scored with. See real_tables.py."""
