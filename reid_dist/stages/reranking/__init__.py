"""k-reciprocal re-ranking without an N x N matrix: sparse graphs, computed in stages that the workspace keeps.

The published algorithm (Zhong et al., CVPR 2017) holds some six dense matrices of all N queries and gallery items.
The required entries are sparse::

    lists of the nearest items, largest distance of each        every pair of blocks once; each serves both its sides
      -> R*(i), and a weight for each member                    neighbours of neighbours; distances of what is unlisted
      -> mean of the weights over k2 items                      rows of neighbours
      -> pairs of a query and a gallery item that share weight  one by one
      -> ranks under (1 - lambda) d_J + lambda D                the counting tile loop, for pairs that share none

A pair that shares no weight has the Jaccard distance 1 exactly, so its re-ranked distance increases with the plain one,
and the tile loop that counts plain distances below a threshold counts these pairs as well, below another threshold.
The result is that of the dense algorithm.  It does not depend on blocks, workers or their number: lists and weights
are computed from canonical distances in a fixed order.
"""
