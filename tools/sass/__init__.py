"""Our micro-operations beside the SASS that ptxas makes of the same program."""
