"""What scripts/bench, scripts/round-trips and scripts/plot are made of."""
