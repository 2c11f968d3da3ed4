"""`make mutate`: break the sources a little, one place at a time, and see whether the tests notice."""
