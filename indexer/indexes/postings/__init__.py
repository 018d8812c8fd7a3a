"""Postings of passages: inversion, and selection of candidates by impacts of one byte, whatever the impacts mean.

inversion   rows -> blocks, resumable              while_storing  inversion while the passages are stored
files       the files of an index                  cursors        terms block by block
candidates  rows and their threshold               upper_bounds   16-bit bounds of scores
selection   the candidates of a query
"""
