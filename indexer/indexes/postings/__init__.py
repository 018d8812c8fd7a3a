"""Postings of passages: inversion, and selection of candidates by impacts of one byte, whatever weighs them.

inversion   rows -> blocks, resumable              while_storing  inversion while the passages are stored
merging     blocks -> files                        files          the files of an index
cursors     terms block by block                   candidates     rows and their threshold
selection   the candidates of a query              upper_bounds   16-bit bounds of scores
"""
