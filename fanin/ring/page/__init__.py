"""Page and charts of ``fanin ring train``."""
