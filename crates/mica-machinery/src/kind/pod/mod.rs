//! Pod templates, which several kinds hold: what they are filled in with, and whether they can be pods.

mod default;
mod validate;

pub use default::default_template;
pub use validate::validate_template;
