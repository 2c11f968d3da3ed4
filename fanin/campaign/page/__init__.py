"""Report page of ``fanin campaign``, and statistics of the page and of ``compare``."""
