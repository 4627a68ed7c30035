"""Charts as inline SVG that takes its colours from the page.

Written by hand rather than drawn by a plotting library: a chart here is some twenty elements whose colours are
CSS classes, so that one picture is right on a light and on a dark screen, its labels are text in the font of the
page, a value is shown under the pointer without scripts, and the bytes depend on the numbers alone.
Colour is never the only sign: lines carry their values, cells their numbers.
"""
