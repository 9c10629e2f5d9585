"""The commands of `warpsmith`, one module each, imported only when they run."""
