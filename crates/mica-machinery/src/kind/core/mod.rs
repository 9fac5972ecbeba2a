//! The kinds of the core group.

pub mod configmap;
pub mod event;
pub mod limitrange;
pub mod namespace;
pub mod podtemplate;
pub mod quota;
pub(super) mod resource;
pub mod secret;
pub mod serviceaccount;
