//! The kinds that extend the API: CustomResourceDefinitions and APIServices.

pub mod definition;
pub mod schema;
pub mod service;
