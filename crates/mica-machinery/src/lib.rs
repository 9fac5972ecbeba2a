//! Pure functions over Kubernetes objects: decoding, validation, patches, selectors, managed fields, tables.
//!
//! The object model is `serde_json::Value` everywhere. Nothing here does I/O or reads a clock: time is an argument.

pub mod access;
pub mod admission;
pub mod audit;
pub mod authentication;
pub mod cel;
pub mod codec;
pub mod duration;
pub mod facts;
pub mod field;
pub mod kind;
pub mod managed;
pub mod meta;
pub mod names;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod rbac;
pub mod schema;
pub mod select;
pub mod strategic;
pub mod time;
pub mod yaml;
