"""Methods that answer a query with no demonstrations in its prompt: one interface, one file each."""
