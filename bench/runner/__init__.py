"""What bench/run is made of: host (the machine), workshop (what must stand before measuring), rows (results)."""
