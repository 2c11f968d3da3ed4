"""The page of ``fanin campaign``, and the statistics that it and the command use."""
