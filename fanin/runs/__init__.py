"""What every run is, whatever it trains: its options."""
