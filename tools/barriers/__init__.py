"""Long random jobs about barriers."""
