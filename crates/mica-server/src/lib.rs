//! The API server as a library: requests in, stored objects out.

pub mod error;
pub mod options;
pub mod request;
