//! Services and what stands behind and before them: endpoints, ingresses and policies.

pub mod address;
pub mod endpoints;
pub mod ingress;
pub mod policy;
pub mod range;
pub mod service;
mod service_family;
mod service_print;
mod service_update;
mod service_validate;
pub mod slice;
