"""Time of collectives within a node: links, the library's choice of algorithm and protocol, and what it costs."""
