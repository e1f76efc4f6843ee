"""The computing of each figure: chains of the library in, tables and arrays out."""
