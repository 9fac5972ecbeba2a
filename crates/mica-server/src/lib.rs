//! The API server as a library: requests in, stored objects out.

pub mod error;
pub mod health;
pub mod http;
pub mod metrics;
pub mod negotiate;
pub mod options;
pub mod pki;
pub mod request;
pub mod tls;
pub mod version;
