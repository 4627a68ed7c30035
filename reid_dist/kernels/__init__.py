"""Arrays in, arrays out: the compiled inner loops.  `settings` owns the compiler's settings."""
