//! Selectors: which objects a list or watch is about, by label or by field.
//!
//! A selector is parsed once and matched many times: against the labels of a decoded object, or against [`RawMeta`],
//! which borrows from an object's stored bytes so that LIST and WATCH build no trees.
//! Parse errors are upstream's sentences: they are the message of a 400.

mod field;
mod label;
mod parse;
mod raw;
#[cfg(test)]
mod tests;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm, escape_value};
pub use label::{
    LabelSelector, LabelSelectorError, Labels, Operator, Requirement, Tolerance, label_selector_errors,
    requirement_errors,
};
pub use raw::{RawError, RawMeta, RawOwner, text_at};
