"""What tests of several parts share: data, processes, browsers, and independent implementations."""
