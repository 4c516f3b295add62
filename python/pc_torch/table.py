"""The table of ATen ops. Rows are in ops_views.py, ops_math.py, ops_layers.py and choices.py; tensors are `Tensor`s or constants."""

from pc_program.table import Table

TABLE = Table("aten.")
RULES, ROWS, row, op = TABLE.rules, TABLE.rows, TABLE.row, TABLE.op
