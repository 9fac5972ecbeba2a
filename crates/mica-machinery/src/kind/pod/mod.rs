//! Pods, and the pod templates that several kinds hold: what they are filled in with, and whether they can run.

pub(super) mod affinity;
mod apparmor;
mod container;
mod default;
mod env;
pub mod evict;
mod overlap;
mod place;
mod prepare;
mod print;
pub mod priority;
mod probe;
pub(super) mod reference;
mod resize;
pub(super) mod resource;
pub mod runtime;
mod security;
mod status;
mod strategy;
mod update;
mod validate;
mod warn;

pub use default::default_template;
pub use strategy::Pod;
pub use validate::validate_template;
pub use warn::template_warnings;
pub(super) use warn::{expression_warnings, fraction_warning, old_label, old_source};

pub(super) use place::{validate_effect, validate_tolerations};
