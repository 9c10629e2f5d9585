"""Single mistakes in the barrier protocol of a shipped program, made automatically, and what becomes of them."""
