//! Tests over the whole table of kinds.
