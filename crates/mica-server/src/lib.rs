//! The API server as a library: requests in, stored objects out.
//!
//! `http` is the outside (connections, TLS, the frame around every request), `serve` turns a request into a call on the
//! `registry`, and the registry reads and writes the store. `plane` knows which control planes exist.

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod base;
pub mod budget;
pub mod conversion;
pub mod custom;
pub mod discovery;
pub mod egress;
pub mod encode;
pub mod error;
pub mod fairness;
mod follow;
pub mod health;
pub mod http;
pub mod metrics;
pub mod negotiate;
pub mod objects;
pub mod openapi;
pub mod options;
mod pages;
pub mod pki;
pub mod plane;
mod pod;
mod quiet;
pub mod registry;
pub mod request;
mod review;
mod scale;
pub mod scheme;
pub mod seal;
pub mod serve;
mod sign;
pub mod start;
pub mod stored;
mod subresource;
pub mod tenancy;
pub mod tls;
mod token;
pub mod version;
mod wildcard;
